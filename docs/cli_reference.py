"""Write docs/reference/commands.md from the program itself: `python docs/cli_reference.py`. A test compares them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from gratis.cli.program import app

PAGE = Path(__file__).parent / "reference" / "commands.md"
HEAD = """# Commands

Made from the program by `python docs/cli_reference.py`; `gratis COMMAND --help` says the same. Every command that
prints results has `--json`. Exit codes: 0 done, 2 bad input or refused, 3 an audit's alarm or a certificate that does
not verify, 130 after Ctrl-C, 143 after SIGTERM.
"""


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands of the tree that do something."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, found in inner.items():
        if not found.hidden:
            yield from commands(found, (*words, name))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if callable(value) or value is None or value == "":
        return ""
    return ("on" if value else "off") if isinstance(value, bool) else f"`{value}`"


def entry(words: tuple[str, ...], command: Any) -> str:
    """One command: its sentence, how it is called, and a table of its options."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"]
    called = " ".join([*words, *(p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments)])
    lines = [f"## {' '.join(words)}", "", " ".join((command.help or "").split()), "", "```text"]
    lines += [called + (" [OPTIONS]" if options else ""), "```", ""]
    rows = [(p.name.upper(), _default(p), getattr(p, "help", None) or "") for p in arguments]
    rows += [(", ".join([*p.opts, *p.secondary_opts]), _default(p), p.help or "") for p in options]
    if rows:
        lines += ["| argument or option | default | meaning |", "|---|---|---|"]
        lines += [f"| `{_cell(name)}` | {_cell(default)} | {_cell(text)} |" for name, default, text in rows]
    return "\n".join(lines).rstrip() + "\n"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(entry(*one) for one in commands(typer.main.get_command(app), ("gratis",)))])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
