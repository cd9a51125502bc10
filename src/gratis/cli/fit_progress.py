"""How far `gratis fit` has come: what it says when it is stopped, and what it does when there is no room."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from gratis.cli.interruption import Interrupted
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    from gratis.estimators.model_folder import ModelFolder
    from gratis.estimators.release import LateLedger
    from gratis.estimators.table_fit import TableFit
    from gratis.records.budget import Budget

__all__ = ["FitProgress"]


class FitProgress:
    """How far a fit has come. Whatever stops it, the last sentence says what was spent and where the model is."""

    def __init__(self, asked: Budget, file: str) -> None:
        self.notes: list[str] = []
        self._asked, self._file = asked, file
        self._folder: Any = None
        self._ledger: LateLedger | None = None
        self._dataset: str | None = None
        self._begun = False

    def follow(self, folder: ModelFolder, ledger: LateLedger | None, dataset: str | None) -> None:
        """Know where the model will be, and which budget pays."""
        self._folder, self._ledger, self._dataset = folder, ledger, dataset

    def __enter__(self) -> FitProgress:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        words, spent = self._words(), self._spent()
        if self._begun and not spent:
            self._folder.refused()
        if isinstance(error, Interrupted) or (spent and isinstance(error, GratisError)):
            error.args = (f"{error}; {words}",)
        elif not spent:
            return  # refused: that spends nothing
        elif isinstance(error, (OSError, MemoryError)):
            reason = getattr(error, "strerror", None) or str(error) or "there is not enough memory"
            raise GratisError(f"{reason}; {words}")
        else:  # a fault of the program: its traceback follows
            typer.echo(f"gratis: {words}", err=True)

    def begin(self) -> None:
        """Mark in the folder that a training is under way."""
        self._begun = True
        self._folder.begin(budget=self._asked.describe(), file=self._file, ledger=self._dataset)

    def save(self, done: TableFit) -> None:
        """Put the pair on the disk; where it finds no room there, on another one."""
        from gratis.estimators.model_folder import ModelFolder

        parts = done.estimator, done.context, None if done.score is None else done.score.certificate
        try:
            self._folder.save(*parts)
        except GratisError:
            if self._folder.whole is None:
                with suppress(GratisError, OSError):
                    refuge = ModelFolder(tempfile.mkdtemp(prefix="gratis-"))
                    refuge.save(*parts)
                    self._folder.whole = refuge.whole
            raise

    def add(self, what: str, work: Callable[[], object]) -> None:
        """Try what is no part of the release: it may fail, and the model stands."""
        try:
            work()
        except Exception as error:  # of whatever kind
            self.notes.append(f"Left out: {what} ({error}).")

    def _spent(self) -> bool:
        return self._begun if self._ledger is None else bool(self._ledger.reservations)

    def _words(self) -> str:
        if not self._spent():
            return "nothing was spent"
        spent = self._price()
        if self._folder.whole is not None:
            return f"the model is saved in {str(self._folder.whole)!r}, and {spent}"
        return f"{spent}, and there is no model" if self._ledger else f"if the training had begun, {spent}: no model"

    def _price(self) -> str:
        """What this run took, as the ledger has it."""
        from gratis.ledger.spending import price
        from gratis.records.events import Composition

        if self._ledger is None or self._dataset is None:
            return f"{self._asked.describe()} is spent (no ledger counts it)"
        try:
            status = self._ledger.status(self._dataset)
            taken = price(status.budget, (), Composition(tuple(one.event for one in self._ledger.reservations))).words
        except GratisError:
            return f"{self._asked.describe()} is spent"
        left = dict(status.facts)["left"]
        return f"{taken} is spent of the budget {self._dataset!r} ({left} is left)"
