"""From reservation to certificate: what surrounds every private step; what was paid for is on the disk first."""

from __future__ import annotations

import copy
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from gratis.accounting import issue_certificate
from gratis.estimators.released_arrays import arrays_digest, released_arrays
from gratis.ledger import Ledger
from gratis.ledger.accounts import Reservation
from gratis.ledger.payloads import MODEL
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate, Selection
from gratis.records.errors import GratisError
from gratis.records.events import Event, Parallel
from gratis.records.plans import Plan

__all__ = ["LateLedger", "Release", "uninterrupted", "without_ledger"]


class Release(AbstractContextManager["Release"]):
    """From reservation to certificate: spent on entry, even if the process dies inside; certified on success.

    >>> from gratis.records.events import GaussianRelease
    >>> event = GaussianRelease(sensitivity=1.0, noise_std=10.0, neighbouring="replace-one")
    >>> with Release(event, Budget(mu=0.5), NoiseSource.secure()) as release:
    ...     noisy = release.noise.release([0.0], event.noise_std)
    >>> release.certificate.guarantee["within_budget"]
    True
    """

    def __init__(
        self,
        event: Event,
        budget: Budget,
        noise: NoiseSource,
        *,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        purpose: str = "training",
        plan: Plan | None = None,
        selection: Selection = Selection.NONE,
        assumptions: tuple[str, ...] = (),
        persons: str | None = None,
        model: str | None = None,
    ) -> None:
        """`persons` is what the ids of persons are called, where they are the unit ("": they have no name).

        `model` says what is trained, for the ledger.
        """
        self.event, self.budget, self.noise = event, budget, noise
        self._ledger, self._dataset, self._purpose = ledger, dataset, purpose
        self._plan, self._selection, self._assumptions, self._persons = plan, selection, assumptions, persons
        self._note = "" if model is None else f"{MODEL}{model}"
        self._digest: str | None = None
        self._reservation: Any = None
        self._certificate: Certificate | None = None

    @property
    def certificate(self) -> Certificate:
        """The certificate, once the block has ended well."""
        if self._certificate is None:
            raise GratisError("there is no certificate before the training has ended")
        return self._certificate

    def bind(self, estimator: Any) -> None:
        """Let certificate and ledger name the arrays that a fitted estimator now holds."""
        self._digest = arrays_digest(released_arrays(estimator))

    def __enter__(self) -> Release:
        if self._ledger is not None and self._dataset is not None:
            self._reservation = self._ledger.reserve(
                self._dataset, self.event, purpose=self._purpose, note=self._note, persons=self._persons
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return  # what was reserved stays spent
        if self._ledger is not None and self._reservation is not None:
            self._reservation = self._ledger.commit(self._reservation.id, self.event, released=self._digest)
        certificate = issue_certificate(
            event=self.event,
            budget=self.budget,
            selection=self._selection,
            randomness=self.noise.describe(),
            assumptions=self._assumptions,
            plan=None if self._plan is None else self._plan.to_json(),
            ledger_entry=None if self._reservation is None else self._reservation.to_json(),
            persons=self._persons is not None,
        )
        self._certificate = replace(certificate, released=self._digest)


def without_ledger(estimator: Any) -> Any:
    """A copy to be sent to workers: it holds no ledger."""
    sent = copy.copy(estimator)
    sent.ledger = None
    return sent


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block has ended; the first that came is raised then.

    Blocking them for the thread would not do: the system may deliver them to a thread of a numerical library, and
    Python would still run their handlers here.
    """
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread only
        yield
        return
    held: list[int] = []
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not None]
    before = {number: signal.signal(number, lambda came, _: held.append(came)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


class LateLedger(Ledger):
    """A ledger that is told of a release when `settle` is called, and not at the end of the training.

    Whoever writes models to files writes first and settles then: a process that dies in between leaves a model whose
    reservation was never committed (spent all the same), and never a committed release without a model.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.reservations: list[Reservation] = []
        self._ended: list[tuple[str, Event, str | None]] = []
        self._beside: Event | None = None

    @contextmanager
    def beside(self, event: Event | None) -> Iterator[None]:
        """Let what is reserved inside the block pay for `event` too, a release on other records: one entry for both."""
        self._beside = event
        try:
            yield
        finally:
            self._beside = None

    def reserve(self, name: str, event: Event, **words: Any) -> Reservation:
        """Reserve, and remember that something was: also when the process is told to stop meanwhile."""
        whole = event if self._beside is None else Parallel((event, self._beside))
        with uninterrupted():
            self.reservations.append(super().reserve(name, whole, **words))
        return self.reservations[-1]

    def commit(self, reservation_id: str, event: Event, *, released: str | None = None) -> Reservation:
        """Note that the training has ended; `settle` writes it into the file."""
        reserved = self.reservation(reservation_id)
        parts = reserved.event.events if isinstance(reserved.event, Parallel) else ()
        self._ended.append((reservation_id, reserved.event if event in parts[:1] else event, released))
        return reserved

    def settle(self) -> dict[str, Any] | None:
        """Commit what has ended; return the last such reservation as certificates hold it."""
        last = None
        while self._ended:
            name, event, released = self._ended[0]
            last = super().commit(name, event, released=released)
            del self._ended[0]
        return None if last is None else last.to_json()
