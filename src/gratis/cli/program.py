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

app = typer.Typer(
    name="gratis",
    help="Know what privacy will cost before the data is touched, pay the least, prove what was paid.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(account.app, name="account")
app.add_typer(plan.app, name="plan")
app.add_typer(ledger.app, name="ledger")
app.add_typer(certificate.app, name="certificate")
app.add_typer(audit.app, name="audit")
app.add_typer(lab.app, name="lab")
app.add_typer(papers.app, name="papers")
app.command()(quickstart.quickstart)
for command in (fit, predict, report, compare, schema, spectrum, studio):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("gratis"))
        raise typer.Exit(0)


def run(arguments: list[str]) -> int:
    """Run the program on arguments; return its exit code."""
    try:
        with interruptible():
            code = app(args=arguments, prog_name="gratis", standalone_mode=False)
            sys.stdout.flush()
    except GratisError as error:
        code = _fail(str(error))
        command = getattr(error, "command", None)
        if command is not None:
            typer.echo(f"all of it in one command:\n  {command}", err=True)
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
