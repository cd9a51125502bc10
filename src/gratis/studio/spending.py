"""Ledgers, a planned fit, and the one confirmation that spends it.

A plan is shown together with the ledger's head. Confirming takes the plan's ticket, which works once, and only while
the ledger still ends where the user saw it end: of two tabs that show the same budget, one can spend.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gratis.accounting import calibrate_mu
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.studio import fields
from gratis.studio.columns import stated_schema
from gratis.studio.folder import LEDGERS, TABLES, WORK, StudioFolder
from gratis.studio.runs import Runs

__all__ = ["Spending"]

_MOST_TICKETS = 50


@dataclass(frozen=True, slots=True)
class _Ticket:
    name: str
    arguments: tuple[str, ...]
    record: dict[str, Any]
    files: dict[str, str]
    worthless: str | None
    ledger: Path
    head: str
    table: Path
    stamp: tuple[int, int]


class Spending:
    """Plans that were shown, by ticket."""

    def __init__(self, folder: StudioFolder, runs: Runs) -> None:
        self._folder, self._runs = folder, runs
        self._tickets: dict[str, _Ticket] = {}
        self._guard = threading.Lock()

    def ledgers(self) -> list[dict[str, Any]]:
        """Every ledger below the folder and where its budgets stand; one that is damaged says so."""
        found: list[dict[str, Any]] = []
        for name in self._folder.files(LEDGERS):
            try:
                statuses = Ledger.open(self._folder.inside(name)).statuses()
            except GratisError as error:
                found.append({"file": name, "budgets": [], "error": str(error)})
            else:
                found.append({"file": name, "budgets": [_status(status) for status in statuses], "error": None})
        return found

    def create_budget(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Give a data set its budget, in a new ledger or in one that exists."""
        name, budget = fields.text(body, "name"), fields.budget(body)
        path = self._folder.inside(fields.text(body, "file"))
        if not path.name.endswith(LEDGERS) or path.parent != self._folder.root:
            raise GratisError("a ledger is a file that ends with .ledger, in the folder that the studio was started in")
        if os.path.lexists(path):
            Ledger.open(path).create_budget(name, budget)
        else:
            Ledger.create(path, {name: budget})
        return {"ledgers": self.ledgers()}

    def plan(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Plan a fit to the end, as `gratis fit --dry-run` does; nothing is spent."""
        from gratis.estimators.table_fit import plan_table_fit
        from gratis.estimators.worth import worthless_words

        table = self._folder.find(body.get("file"), TABLES)
        target, budget, name = fields.text(body, "target"), fields.budget(body), fields.text(body, "name")
        place = self._folder.work(name)
        if place.exists():
            raise GratisError(f"there is a run {name!r} already; give this one another name")
        ledger, data_set = self._folder.find(body.get("ledger"), LEDGERS), fields.text(body, "budget")
        books = Ledger.open(ledger)
        status = books.status(data_set)
        schema, private = stated_schema(body.get("columns"), target)
        listed = [part.strip() for part in fields.text(body, "classes", "").split(",") if part.strip()] or None
        model, task = fields.text(body, "model", "auto"), fields.text(body, "task", "auto")
        held_out = fields.number(body, "hold_out")
        missing = fields.text(body, "missing_target", "refuse")
        job = plan_table_fit(
            table, target, budget, model=model, task=task, classes=listed, schema=schema, private_levels=private,
            missing_target=missing, held_out=held_out,
        )  # fmt: skip
        if budget.neighbouring is not status.budget.neighbouring:
            raise GratisError(
                f"the budget {data_set!r} counts under {status.budget.neighbouring}: choose that relation in Data"
            )
        price, worthless = books.price(data_set, job.event), worthless_words(job.plan, job.unit)
        inside = f"{WORK}/{name}"
        file = self._folder.shown(table)
        shared = {
            "target": target, "task": job.task, "classes": ",".join(listed) if listed else None,
            "hold-out": f"{held_out:g}" if held_out else None, "schema": f"{inside}/schema.json",
            "private-levels": ",".join(private) or None,
            "missing-target": missing if missing != "refuse" else None,
            "ledger": self._folder.shown(ledger), "budget": data_set, "output": inside,
        }  # fmt: skip
        stated = {
            "model": job.model, "epsilon": f"{budget.epsilon!r}", "delta": f"{budget.delta!r}",
            "neighbouring": str(budget.neighbouring),
        }  # fmt: skip
        asked = ["--yes"] if worthless else []  # the page asks
        said = [*_command(file, stated | shared), *asked]
        # What is shown is what runs; where levels are found first, the columns, and with them the plan, follow then.
        arguments = said if private else [*_command(file, {"plan": f"{inside}/plan.json"} | shared), *asked]
        command = shlex.join(["gratis", *said])
        record = {
            "command": command, "file": file, "target": target, "budget_words": budget.describe(),
            "ledger": shared["ledger"], "budget": data_set, "entries": status.entries,
        }  # fmt: skip
        ticket = secrets.token_urlsafe(16)
        with self._guard:
            self._tickets[ticket] = _Ticket(
                name=name, arguments=tuple(arguments), record=record,
                files={"schema.json": _json(schema.to_json()), "plan.json": _json(job.plan.to_json())},
                worthless=worthless, ledger=ledger, head=status.head, table=table, stamp=_stamp(table),
            )  # fmt: skip
            while len(self._tickets) > _MOST_TICKETS:
                self._tickets.pop(next(iter(self._tickets)))
        cost = job.plan.cost
        return {
            "ticket": ticket, "name": name, "words": job.words(), "model": job.model, "task": job.task,
            "rows": job.training.n_rows, "columns": len(job.schema.names), "classes": job.n_classes,
            "cost": None if cost is None else cost._asdict(),
            "epsilon": f"{budget.epsilon:g}", "delta": f"{budget.delta:g}", "price": price.words, "mu": price.mu,
            "share": _share(status.budget, price.mu, price.epsilon), "worthless": worthless,
            "status": _status(status), "command": command,
            "fits": price.fits, "assumptions": list(job.assumptions),
        }  # fmt: skip

    def spend(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Run what the ticket was made for: once, and only if nothing changed since the user saw it."""
        with self._guard:
            name = fields.text(body, "ticket")
            ticket = self._tickets.get(name)
            if ticket is None:
                raise GratisError("this plan was confirmed already, or is too old: plan again")
            if ticket.worthless and body.get("yes") is not True:
                raise GratisError(f"{ticket.worthless}: nothing was spent; confirm that it shall be all the same")
            del self._tickets[name]
            if Ledger.open(ticket.ledger).head != ticket.head:
                raise GratisError("the ledger changed since this plan was shown: nothing was spent; plan again")
            if _stamp(ticket.table) != ticket.stamp:
                raise GratisError("the table changed since this plan was shown: nothing was spent; plan again")
            self._runs.start(ticket.name, ticket.arguments, ticket.record, ticket.files)
        return {"name": ticket.name}


def _command(file: str, options: Mapping[str, str | None]) -> list[str]:
    """`gratis fit` with these options; `=` so that no value is taken for an option."""
    path = file if not file.startswith("-") else f"./{file}"
    return ["fit", path, *(f"--{name}={value}" for name, value in options.items() if value is not None)]


def _status(status: Any) -> dict[str, Any]:
    """A budget for the page, as `gratis ledger show` tells of it."""
    return {
        **{key: value for key, value in status.to_json().items() if key != "never_committed"},
        "never_committed": len(status.never_committed),
        "facts": dict(status.facts),
        "left_share": _share(status.budget, status.remaining_mu, status.left_epsilon),
        "releases": [one.to_json() for one in status.releases],
    }


def _share(budget: Budget, mu: float | None, epsilon: float | None) -> float:
    """The share of μ², for a bar; of what has no μ that of the Gaussian release with its ε."""
    if mu is None:
        asked = epsilon and math.isfinite(epsilon) and budget.delta is not None
        mu = calibrate_mu(replace(budget, epsilon=epsilon)) if asked else 0.0
    return min(1.0, (mu / calibrate_mu(budget)) ** 2)


def _json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False)


def _stamp(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns
