"""Write docs/reference/commands.md from the program itself: `python docs/cli_reference.py`. A test compares them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer.main

from gratis.cli.program import app, run

PAGE = Path(__file__).parent / "reference" / "commands.md"
HEAD = """# Commands

Made from the program by `python docs/cli_reference.py`; `gratis COMMAND --help` says the same. Every command that
prints results has `--json`. Exit codes: 0 done, 2 bad input or refused, 3 an audit's alarm or a certificate that does
not verify, 130 after Ctrl-C, 143 after SIGTERM. Examples were run as printed; audits and training draw fresh noise.
"""
# Commands behind the papers' theorems, each with an example that is run: `gratis …` → lines of Python before it.
EXAMPLES: dict[str, str] = {
    "gratis plan one-pass --task classification --n 20000 --d 200 --epsilon 1 --delta 1e-5 --signal-variance 4 "
    "--spectrum power:0.5 --alignment 0": "",
    "gratis spectrum gradients.npy --noise-std 0.01": """\
import numpy as np

rng = np.random.default_rng(0)
few = rng.standard_normal((60, 5)) * [3, 1.5, 0.8, 0.4, 0.2] @ np.linalg.qr(rng.standard_normal((2000, 5)))[0].T
np.save("gradients.npy", few + 0.01 * rng.standard_normal((60, 2000)))
""",
    "gratis plan one-pass --n 10000 --d 20 --epsilon 1 --delta 1e-5 --schedule harmonic "
    "--spectrum power:0.5 --signal-variance 1 --label-noise-variance 0.25": "",
    "gratis plan network --n 10000 --d 3072 --classes 2 --width 1024 --depth 4 --kl-budget 1 "
    "--smoothness 2 --jump 2": "",
    "gratis plan spectrum --power 3 --d 5000 --n 1000 --epsilon 1 --delta 1e-5": "",
    "gratis audit membership linear --n 16 --shadows 16 --targets 8": "",
    "gratis audit one-run linear --n 200": "",
    "gratis audit tracing --n 40 --d 10 --runs 40": "",
    "gratis lab noisy-gd --kl-budget 1 --n 1000 --d 10 --width 32": "",
    "gratis papers run s1-ladder": "",
}
_SHOWN = re.compile(r"^```console\n\$ (gratis [^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def kept_outputs() -> dict[str, str]:
    """What the examples on the page printed when they were run."""
    return dict(_SHOWN.findall(PAGE.read_text(encoding="utf-8")))


def output(command: str) -> str:
    """Run one example in an empty folder; an exit code other than 0 is an error."""
    text = StringIO()
    with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(text), redirect_stderr(StringIO()):
        exec(EXAMPLES[command], {})
        if run(shlex.split(command)[1:]) != 0:
            raise RuntimeError(f"{command} failed: {text.getvalue()}")
    return re.sub(r" +$", "", text.getvalue().rstrip(), flags=re.MULTILINE) + "\n"


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


def entry(words: tuple[str, ...], command: Any, outputs: Mapping[str, str]) -> str:
    """One command: its sentence, how it is called, a table of its options, and its example if it has one."""
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
    for example, before in EXAMPLES.items():
        if example.startswith(" ".join([*words, ""])):
            lines += ["", *(["```python", before.rstrip(), "```", ""] if before else [])]
            lines += ["```console", f"$ {example}", outputs.get(example, "").rstrip(), "```"]
    return "\n".join(lines).rstrip() + "\n"


def page(outputs: Mapping[str, str]) -> str:
    """The whole page, with what the examples printed."""
    return "\n".join([HEAD, *(entry(*one, outputs) for one in commands(typer.main.get_command(app), ("gratis",)))])


if __name__ == "__main__":
    PAGE.write_text(page({command: output(command) for command in EXAMPLES}), encoding="utf-8")
