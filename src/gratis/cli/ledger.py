"""`gratis ledger`: create, show and verify the file that keeps the budgets of data sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gratis.cli.output import JSON_OPTION, emit, table
from gratis.records.budget import Budget
from gratis.records.neighbouring import Neighbouring

if TYPE_CHECKING:
    from gratis.ledger import Status
    from gratis.records.record import JsonObject

__all__ = ["app"]

app = typer.Typer(help="Budgets of data sets across runs.", no_args_is_help=True)

_FILE = typer.Argument(..., help="The ledger file.")


@app.command()
def create(
    file: str = _FILE,
    name: str = typer.Option(..., help="Name of the data set."),
    mu: float | None = typer.Option(None, help="Total budget as a Gaussian-DP parameter."),
    epsilon: float | None = typer.Option(None, help="Total budget: epsilon, together with --delta."),
    delta: float | None = typer.Option(None, help="Total budget: delta, strictly between 0 and 1."),
    neighbouring: str = typer.Option("replace-one", help="Relation of the budget: replace-one or zero-out."),
    fingerprint_of: Path | None = typer.Option(
        None, help="Also store the SHA-256 of this file (not private: whoever guesses the data can check)."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Give a data set its budget, in a new ledger or in one that exists. It cannot be changed later."""
    from gratis.ledger import Ledger, content_fingerprint

    budget = Budget(mu=mu, epsilon=epsilon, delta=delta, neighbouring=Neighbouring.parse(neighbouring))
    fingerprint = content_fingerprint(fingerprint_of.read_bytes()) if fingerprint_of else None
    if os.path.lexists(file):
        status = Ledger.open(file).create_budget(name, budget, fingerprint)
    else:
        status = Ledger.create(file, {name: budget}, fingerprints={name: fingerprint}).status(name)
    emit(status.to_json(), as_json=as_json, text=f"{file}: {status.name} has {status.budget.describe()}")


@app.command()
def show(
    file: str = _FILE,
    name: str | None = typer.Option(None, help="Only this data set."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show what each data set has spent and has left, release by release.

    With --name the JSON is that data set's own object.
    """
    from gratis.ledger import Ledger

    ledger = Ledger.open(file)
    if name is not None:
        status = ledger.status(name)
        emit(_listed(status), as_json=as_json, text=_told(status))
        return
    statuses = ledger.statuses()
    head = ledger.head if not statuses else statuses[0].head
    emit(
        {"head": head, "budgets": [_listed(status) for status in statuses]},
        as_json=as_json,
        text="\n\n".join([*map(_told, statuses), f"head {head}"]),
    )


@app.command()
def verify(
    file: str = _FILE,
    anchor: str | None = typer.Option(None, help="A head noted earlier, which must still be in the chain."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Check the file, the chain, every entry and every total; exit code 2 if anything is amiss."""
    from gratis.ledger import Ledger

    found = Ledger.open(file).verify(anchor=anchor)
    coverage = "every byte of the file" if found.every_byte else "its content; another SQLite build wrote it"
    emit(
        {
            "valid": True,
            "entries": found.entries,
            "head": found.head,
            "names": list(found.names),
            "every_byte": found.every_byte,
        },
        as_json=as_json,
        text=f"valid: {found.entries} entries, {len(found.names)} budgets, checked: {coverage}\nhead {found.head}",
    )


def _listed(status: Status) -> JsonObject:
    return status.to_json() | {"releases": [one.to_json() for one in status.releases]}


def _told(status: Status) -> str:
    """A data set: what is spent and left, and every release."""
    lines = [status.name, *(f"  {name}: {words}" for name, words in status.facts)]
    lines += [f"  the unit of privacy is {status.units[0]}"] if len(status.units) == 1 else []
    lines += ["  on different units of privacy: no total holds"] if len(status.units) > 1 else []
    if status.releases:
        header = ["entry", "date", "purpose", "model", "digest", "cost"]
        rows = [
            [
                str(one.sequence), one.time[:16].replace("T", " "), one.purpose, one.model or "-",
                (one.released or "-")[:12] if one.committed else "never committed: spent", one.price,
            ]
            for one in status.releases
        ]  # fmt: skip
        lines += [f"  {line}" for line in table(header, rows).splitlines()]
    return "\n".join(lines)
