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
    emit(status.to_json(), as_json=as_json, text=f"{file}: {_sentence(status)}")


@app.command()
def show(
    file: str = _FILE,
    name: str | None = typer.Option(None, help="Only this data set."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show what each data set has spent and has left. With --name the JSON is that data set's own object."""
    from gratis.ledger import Ledger

    ledger = Ledger.open(file)
    if name is not None:
        status = ledger.status(name)
        lines = [_sentence(status)]
        lines += [f"  {count} for {purpose}" for purpose, count in status.by_purpose.items()]
        lines += [f"  the unit of privacy is {status.units[0]}"] if len(status.units) == 1 else []
        lines += ["  on different units of privacy: no total holds"] if len(status.units) > 1 else []
        lines += [
            f"  spent, never committed: entry {r.sequence}, {r.purpose}, {r.time}" for r in status.never_committed
        ]
        emit(status.to_json(), as_json=as_json, text="\n".join(lines))
        return
    statuses = ledger.statuses()
    rows = [
        [
            status.name,
            status.budget.describe(),
            _number(status.spent_mu),
            _number(status.remaining_mu),
            str(status.reservations),
            str(len(status.never_committed)),
        ]
        for status in statuses
    ]
    header = ["data set", "budget", "spent mu", "mu left", "reservations", "never committed"]
    head = ledger.head if not statuses else statuses[0].head
    emit(
        {"head": head, "budgets": [status.to_json() for status in statuses]},
        as_json=as_json,
        text=f"{table(header, rows)}\nhead {head}",
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


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _sentence(status: Status) -> str:
    if status.spent_mu is None:
        spent = f"epsilon {_number(status.spent_epsilon)} spent"
    else:
        left, total = _number(status.remaining_mu), _number(status.total_mu)
        spent = f"mu {_number(status.spent_mu)} spent, {left} left of {total}"
    return f"{status.name}: {status.budget.describe()}; {spent}; {status.reservations} reservations"
