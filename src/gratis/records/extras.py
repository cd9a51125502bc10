"""What to type where an optional package is missing: a command that works for how this copy was installed."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from gratis.records.errors import MissingExtraError

__all__ = ["install_command", "missing_extra"]


def missing_extra(sentence: str, extra: str, otherwise: str = "") -> MissingExtraError:
    """Return the refusal of what needs an extra: the sentence, the command, and what else would do."""
    return MissingExtraError(f"{sentence}: {install_command(extra)}{otherwise}")


def install_command(extra: str) -> str:
    """Return the command that brings an extra's packages, by their own names: the name of this one may lead nowhere.

    >>> install_command("excel").split(" install ")[1]
    "'openpyxl>=3.1'"
    """
    packages = _of_checkout(extra) or _of_distribution(extra) or [extra]
    return f"{_installer()} install {' '.join(map(repr, packages))}"


def _installer() -> str:
    try:
        by = metadata.distribution("gratis").read_text("INSTALLER") or ""
    except metadata.PackageNotFoundError:
        by = ""
    return "uv pip" if by.strip() == "uv" else "pip"


def _of_checkout(extra: str) -> list[str]:
    """What the project file beside the source says, where this copy is a checkout: it is newer than the metadata."""
    try:
        project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return list(project["optional-dependencies"][extra]) if project["name"] == "gratis" else []
    except (OSError, ValueError, KeyError):
        return []


def _of_distribution(extra: str) -> list[str]:
    try:
        needed = metadata.requires("gratis") or []
    except metadata.PackageNotFoundError:
        return []
    marked = re.compile(rf"""extra == ['"]{re.escape(extra)}['"]""")
    return [line.partition(";")[0].strip() for line in needed if marked.search(line.partition(";")[2])]
