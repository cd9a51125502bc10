"""The documentation says what is true of the program: pages exist, commands parse, Python compiles."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gratis.cli.program import app, run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIGURATION = ROOT / "mkdocs.yml"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")]) if CONFIGURATION.is_file() else []
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not PAGES, reason="the documentation is not part of this installation")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if language.strip() in languages:
            yield text


def commands(page: Path) -> Iterator[list[str]]:
    """The words after `gratis` of every command shown: all lines of shell blocks, those after $ in console blocks."""
    for text in blocks(page, "", "bash", "sh", "console"):
        for line in re.sub(r"\\\n\s*", " ", text).split("\n"):
            for part in line.removeprefix("$ ").split(" && "):
                if part.startswith("gratis ") and "…" not in part:
                    words = shlex.split(part, comments=True)
                    end = next((i for i, word in enumerate(words) if word in (">", "|")), len(words))
                    yield words[1:end]


def resolved(words: list[str]) -> tuple[list[str], Any]:
    """Find the command that the words call, and parse its arguments without running it."""
    command: Any = typer.main.get_command(app)
    path: list[str] = []
    while hasattr(command, "resolve_command"):
        context = typer.Context(command, info_name="gratis")
        name, command, words = command.resolve_command(context, words)
        path.append(name)
    return path, command.make_context(path[-1], list(words))


def nav_pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from nav_pages(inner)


def test_every_page_is_in_the_navigation_and_exists() -> None:
    yaml = pytest.importorskip("yaml")
    listed = list(nav_pages(yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))["nav"]))
    assert len(set(listed)) == len(listed)
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert set(listed) == there, "add new pages to the nav of mkdocs.yml"


def test_commands_that_are_shown_can_be_typed() -> None:
    shown = [(page, words) for page in PAGES for words in commands(page)]
    assert len(shown) > 40
    seen = set()
    for page, words in shown:
        try:
            path, _ = resolved(words)
        except Exception as error:
            message = getattr(error, "format_message", lambda error=error: str(error))()
            pytest.fail(f"{page.name}: gratis {shlex.join(words)}: {message}")
        seen.add(tuple(path))
    assert {("fit",), ("compare",), ("schema",), ("audit", "model"), ("audit", "estimator")} <= seen


@pytest.mark.parametrize(
    "wrong", ["fit t.csv --epsilon 1", "fit t.csv --epsilom 1", "ledger status l", "plan quadratic"]
)
def test_a_wrong_command_would_be_noticed(wrong: str) -> None:
    with pytest.raises(Exception) as caught:
        resolved(shlex.split(wrong))
    assert hasattr(caught.value, "format_message")


def test_help_of_every_command_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted({tuple(resolved(words)[0]) for page in PAGES for words in commands(page)}):
        assert run([*path, "--help"]) == 0
        assert "Usage: gratis " + " ".join(path) in capsys.readouterr().out


def test_python_that_is_shown_compiles() -> None:
    found = [(page, text) for page in PAGES for text in blocks(page, "python")]
    assert len(found) > 15
    for page, text in found:
        compile(text, str(page), "exec")


def cli_reference() -> Any:
    import importlib.util

    found = importlib.util.spec_from_file_location("cli_reference", DOCS / "cli_reference.py")
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


def test_the_page_of_commands_is_that_of_the_program() -> None:
    """`python docs/cli_reference.py` writes it."""
    made = cli_reference()
    text = made.page(made.kept_outputs())
    assert made.PAGE.read_text(encoding="utf-8") == text
    assert text.count("\n## ") > 25
    assert "`--hold-out`" in text
    assert made.kept_outputs().keys() == made.EXAMPLES.keys()


@pytest.mark.slow(
    but=[
        "gratis spectrum gradients.npy --noise-std 0.01",
        "command2",
        "gratis plan spectrum --power 3 --d 5000 --n 1000 --epsilon 1 --delta 1e-5",
        "gratis lab noisy-gd --kl-budget 1 --n 1000 --d 10 --width 32",
        "gratis audit one-run linear --n 200",
    ]
)
@pytest.mark.parametrize("command", [*(cli_reference().EXAMPLES if PAGES else ())])
def test_examples_of_commands_print_what_the_page_shows(command: str) -> None:
    """Up to the numbers, and for plans these too (two digits: kernels differ); audits draw fresh noise."""
    pytest.importorskip("torch")
    made = cli_reference()
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
    shown, printed = made.kept_outputs()[command], made.output(command)
    words = [" ".join(number.sub("#", text).split()) for text in (shown, printed)]
    assert words[0] == words[1]
    if command.startswith(("gratis plan", "gratis spectrum")):
        values = [[float(value) for value in number.findall(text)] for text in (shown, printed)]
        assert values[1] == pytest.approx(values[0], rel=0.02)


def test_the_first_commands_of_the_first_page_work_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the quick start leaves behind is what the second command reads."""
    from gratis.cli.quickstart import write_people

    shown = next(words for words in commands(DOCS / "index.md") if words[0] == "fit")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gratis-quickstart").mkdir()
    write_people(tmp_path / "gratis-quickstart" / "people.csv")
    assert run([*shown, "--dry-run"]) == 0
    assert "4 columns after encoding; regression of 'income'" in capsys.readouterr().err
