"""The program: all commands in one tree, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys

import typer

from gratis.cli import account, audit, certificate, lab, ledger, papers, plan, quickstart
from gratis.cli.compare import compare
from gratis.cli.fit import fit
from gratis.cli.interruption import Interrupted, interruptible
from gratis.cli.predict import predict
from gratis.cli.report import report
from gratis.cli.schema import schema
from gratis.cli.spectrum import spectrum
from gratis.cli.studio import studio
from gratis.records.errors import GratisError

__all__ = ["app", "run"]

_GROUPS = {
    "account": account.app, "plan": plan.app, "ledger": ledger.app, "certificate": certificate.app, "audit": audit.app,
    "lab": lab.app, "papers": papers.app,
}  # fmt: skip
_COMMANDS = (quickstart.quickstart, fit, predict, report, compare, schema, spectrum, studio)


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("gratis"))
        raise typer.Exit(0)


def _program(only: str | None = None) -> typer.Typer:
    """The tree of commands, or one branch of it: to read the options of all takes longer than many a command."""
    made = typer.Typer(
        name="gratis",
        help="Know what privacy will cost before the data is touched, pay the least, prove what was paid.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    made.callback(invoke_without_command=True)(_root)
    for name, group in _GROUPS.items():
        if only in (None, name):
            made.add_typer(group, name=name)
    for command in _COMMANDS:
        if only in (None, command.__name__):
            made.command()(command)
    return made


app = _program()


def run(arguments: list[str]) -> int:
    """Run the program on arguments; return its exit code."""
    try:
        with interruptible():
            known = {*_GROUPS, *(command.__name__ for command in _COMMANDS)}
            chosen = _program(arguments[0]) if arguments and arguments[0] in known else app
            code = chosen(args=arguments, prog_name="gratis", standalone_mode=False)
            sys.stdout.flush()
    except GratisError as error:
        command = getattr(error, "command", None)
        if command is None:
            return _fail(str(error))
        # What works comes first, then why: a line a column.
        code = _fail("the table leaves something to decide, and nothing was spent. This decides all of it:")
        typer.echo("\n".join([f"  {command}", *error.lines]), err=True)  # type: ignore[attr-defined]
        return code
    except Interrupted as stop:
        return _fail(str(stop), code=stop.code)
    except typer.Abort:
        return _fail("interrupted", code=130)
    except (BrokenPipeError, SystemExit):  # the reader of our output went away: typer would have it an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"cannot use {error.filename!r}: {error.strerror}" if error.filename else str(error))
    except Exception as error:  # typer's own errors differ in type between its versions
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help page
            typer.echo(message())
            return 2
        return _fail(message())
    return code if isinstance(code, int) else 0


def _fail(sentence: str, *, code: int = 2) -> int:
    typer.echo("gratis: " + " ".join(sentence.split()), err=True)
    return code
