"""The steps of a private training in a user's own loop: paid for, counted, certified, resumed."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gratis.accounting import issue_certificate
from gratis.estimators.released_arrays import arrays_digest, module_arrays
from gratis.ledger import Ledger, Reservation
from gratis.ledger.payloads import MODEL
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate, Selection
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent, PoissonSubsampledGaussian
from gratis.records.record import JsonObject
from gratis.stages.poisson_sampling import PoissonSampling

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PrivateLoop"]

_FORMAT = "gratis-loop/1"
# A run writes to the ledger so often at most, beside its checkpoints: each entry costs a durable write, and whoever
# resumes after a crash without a fresh checkpoint loses at most one part in so many of the steps.
_BLOCKS = 16


class PrivateLoop:
    """The steps of one private training; made by `gratis.privatise`.

    `for step in loop` runs the steps that are left, `loop.step()` one of them, for loops of another form. Either way
    the planned number of steps is all there is: asking for one more raises.
    """

    def __init__(
        self, gradient: Any, X: Any, y: Any, schedule: FullBatchDescent | PoissonSampling, *, budget: Budget,
        noise: NoiseSource, ranks: Any, ledger: Ledger | None, dataset: str | None, purpose: str,
        selection: Selection, resumable: bool,
    ) -> None:  # fmt: skip
        from gratis.stages.noisy_gradients import full_batch_gradients, noise_in_gradients, poisson_gradients

        self.event: FullBatchDescent | PoissonSubsampledGaussian
        self._released: Iterator[Any]
        if isinstance(schedule, PoissonSampling):
            self.event = schedule.event
            self._released = poisson_gradients(gradient, X, y, schedule, noise=noise, ranks=ranks)
        else:
            self.event = schedule
            self._released = full_batch_gradients(gradient, X, y, schedule, noise=noise, ranks=ranks)
        self.budget, self.clip_norm, self.n_steps = budget, gradient.clip_norm, self.event.steps
        self.noise_std = noise_in_gradients(schedule, gradient.clip_norm)  # in every coordinate of every p.grad
        self.n_released = 0
        self._gradient, self._X, self._y, self._noise, self._ranks = gradient, X, y, noise, ranks
        self._ledger, self._dataset, self._purpose, self._selection = ledger, dataset, purpose, selection
        self._resumable = resumable
        self._run = secrets.token_hex(16)
        # A copy would count its steps apart from this one, under the same name in the ledger.
        self._process, self._lock = os.getpid(), threading.RLock()
        self._reservation: Reservation | None = None
        self._claimed = 0
        self._form = _form_of(gradient.module)
        self._certificate: Certificate | None = None

    def __iter__(self) -> Iterator[int]:
        """Run the steps that are left; yields their numbers, from 1."""
        self._refuse_more()
        while self.n_released < self.n_steps:
            yield self.step()
        self.finish()

    def step(self) -> int:
        """Put the next noisy gradient into every `p.grad`, and return the number of the step.

        It counts as released from the moment it is tried. A step that ends in an exception ends the loop.
        """
        with self._alone():
            return self._step()

    def _step(self) -> int:
        self._refuse_more()
        parameters = self._gradient.parameters
        for parameter in parameters:
            parameter.grad = None
        self._ranks.refuse_any(self._changed())
        self._ranks.refuse_any(self._pay())
        self.n_released += 1
        noised = next(self._released, None)
        if noised is None:
            raise GratisError("an earlier step of this loop failed: make a new one, or resume from a checkpoint")
        for parameter, part in zip(parameters, self._gradient.split(noised), strict=True):
            parameter.grad = part
        return self.n_released

    def finish(self) -> Certificate | None:
        """End the loop, also before its last step; commit the reservation and return the certificate (at rank 0).

        The certificate states all T steps that were reserved, which proves what was released whenever the loop was
        stopped and why: a smaller number would be proved only if it had been fixed beforehand. `plan` says how many
        were run. It is bound to the module's parameters and buffers as they are now: call it after your optimiser's
        last step.
        """
        with self._alone():
            return self._finished()

    def _finished(self) -> Certificate | None:
        if self._certificate is None and self._ranks.is_first:
            if not self.n_released:
                raise GratisError("nothing was released: there is nothing to certify")
            entry, digest = self._reservation, _digest(self._gradient.module)
            if self._ledger is not None and entry is not None and not entry.committed:
                entry = self._reservation = self._ledger.commit(entry.id, self.event, released=digest)
            trusted = ("own-loop", "records-apart", *(("trusted-ranks",) if self._ranks.size > 1 else ()))
            certificate = issue_certificate(
                event=self.event, budget=self.budget, selection=self._selection, randomness=self._noise.describe(),
                assumptions=trusted, plan=self._settings | {"steps_run": self.n_released},
                ledger_entry=None if entry is None else entry.to_json(),
            )  # fmt: skip
            self._certificate = replace(certificate, released=digest)
        self.n_steps = self.n_released  # nothing more
        return self._certificate

    @property
    def certificate(self) -> Certificate:
        """The certificate, once all steps are done or `finish` was called."""
        if self._certificate is None and self.n_released == self.event.steps:
            self.finish()
        if self._certificate is None:
            words = "call finish() to stop before the last step" if self._ranks.is_first else "rank 0 holds it"
            raise GratisError(f"there is no certificate yet: {words}")
        return self._certificate

    def state_dict(self) -> JsonObject:
        """What a checkpoint needs to go on, beside the states of module and optimiser: plain data, no noise.

        The ledger notes how many steps were released by now, so that a run which goes on from here loses none.
        """
        with self._alone():
            if self._ledger is not None and self._reservation is not None and self._claimed > self.n_released:
                self._claim(self.n_released)
            reservation = None if self._reservation is None else self._reservation.id
            return {"format": _FORMAT, "released": self.n_released, "reservation": reservation, **self._settings}

    def load_state_dict(self, state: JsonObject, *, forfeit: bool = False) -> None:
        """Go on with the reservation of a checkpoint; noise is drawn anew in any case.

        The ledger knows how many steps may have been released since. If there were any, the checkpoint is refused: a
        step that is run again is one release more. With `forfeit=True` they are given up, and the run has so many
        steps fewer; to have them again, leave this call out, which reserves the whole run anew.
        """
        self._resume(lambda: self._take_over(state, forfeit))

    def take_over(self, reservation: str | None = None) -> None:
        """Go on with the reservation of a run that was killed before its first checkpoint.

        All steps that it claimed in the ledger count as released and are given up; the others are left, from whatever
        weights the module has now (which must not depend on the private rows but through released gradients).
        `reservation` is its id, needed where several runs of this schedule were never finished.
        """
        self._resume(lambda: self._take_over(self._unfinished(reservation), True))

    def _resume(self, take: Callable[[], int]) -> None:
        with self._alone():
            if self.n_released or self._reservation is not None:
                raise GratisError("a run is resumed before the first step")
            problem, taken = None, 0
            try:
                taken = take()
            except GratisError as error:
                problem = str(error)
            self._ranks.refuse_any(problem)
            self.n_released = self._claimed = self._ranks.gathered(taken)[0]

    def _unfinished(self, reservation: str | None) -> JsonObject:
        """The state of a run that left no checkpoint, as far as the ledger knows it."""
        if not self._resumable:
            raise GratisError("only a run with a ledger can be resumed: it counts the steps that were released")
        if self._ledger is not None and reservation is None:  # at rank 0
            assert self._dataset is not None
            entries = self._ledger.status(self._dataset).never_committed
            found = [entry.id for entry in entries if entry.event == self.event and entry.purpose == self._purpose]
            if len(found) != 1:
                listed = f": name one of {', '.join(found)}" if found else ""
                raise GratisError(f"the ledger has {len(found) or 'no'} unfinished runs of this schedule{listed}")
            reservation = found[0]
        return {"format": _FORMAT, "released": 0, "reservation": reservation or "", **self._settings}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread at a time, in the process that made the loop: steps are counted in one place."""
        if os.getpid() != self._process:
            raise GratisError("a loop must not be used in a forked process: its steps would be counted twice")
        with self._lock:
            yield

    def __reduce__(self) -> Any:
        raise GratisError("a loop cannot be copied or stored: its steps would be counted twice; use state_dict()")

    def _take_over(self, state: JsonObject, forfeit: bool) -> int:
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise GratisError(f"this is not the state of a loop in the format {_FORMAT}")
        if {key: state.get(key) for key in self._settings} != self._settings:
            raise GratisError("this checkpoint is of a run with another schedule, budget or clip norm")
        if state["reservation"] is None and state["released"] == 0:
            return 0
        if not self._resumable or not isinstance(state["reservation"], str):
            raise GratisError("only a run with a ledger can be resumed: it counts the steps that were released")
        if self._ledger is None:
            return 0  # rank 0 looks
        entry = self._ledger.reservation(state["reservation"])
        if entry.name != self._dataset or entry.event != self.event or entry.committed:
            raise GratisError("the ledger's reservation of this checkpoint is finished, or of another run")
        released = self._ledger.claimed_steps(entry.id)
        since = released - check_count("released", state["released"], minimum=0)
        if since < 0:
            raise GratisError("the ledger is older than this checkpoint: it has forgotten steps that were released")
        if since and not forfeit:
            raise GratisError(
                f"{since} steps may have been released since this checkpoint; pass forfeit=True to go on with the "
                f"{self.event.steps - released} that are left, or reserve a new run"
            )
        self._ledger.claim(entry.id, run=self._run, released=released, claimed=released)
        self._reservation = entry
        return released

    @property
    def _settings(self) -> JsonObject:
        return {"event": self.event.to_json(), "budget": self.budget.to_json(), "clip_norm": self.clip_norm}

    def _refuse_more(self) -> None:
        if self._certificate is not None or self.n_released >= self.n_steps:
            raise GratisError(
                f"the {self.n_released} steps of this run are used; another step needs another run and another budget"
            )

    def _pay(self) -> str | None:
        """Reserve before the first step, and claim before each block; returns what is wrong, for all ranks."""
        if self._ledger is None or self.n_released < self._claimed:
            return None
        try:
            if self._reservation is None:
                assert self._dataset is not None
                self._reservation = self._ledger.reserve(
                    self._dataset, self.event, purpose=self._purpose,
                    note=f"{MODEL}{type(self._gradient.module).__name__}",
                )  # fmt: skip
            self._claim(min(self.n_released - -self.event.steps // _BLOCKS, self.event.steps))
        except GratisError as error:
            return str(error)
        return None

    def _claim(self, up_to: int) -> None:
        assert self._ledger is not None
        assert self._reservation is not None
        self._ledger.claim(self._reservation.id, run=self._run, released=self.n_released, claimed=up_to)
        self._claimed = up_to

    def _changed(self) -> str | None:
        """Look at the module again if it is not the one that was checked: train() and eval() change what it does."""
        try:
            self._gradient.refuse_changes()
            form = _form_of(self._gradient.module)
            if form != self._form:
                self._gradient.check(self._X, self._y)
                self._form = form
        except GratisError as error:
            return str(error)
        return None


def _digest(module: nn.Module) -> str | None:
    """SHA-256 of the module's arrays; None where its own `state_dict` fails: the certificate stands without it."""
    try:
        return arrays_digest(module_arrays(module))
    except Exception:
        return None


def _form_of(module: nn.Module) -> list[tuple[Any, ...]]:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [
        (
            name, id(part), type(part), part.training, part.__dict__.get("forward"),
            *(tuple(getattr(part, each).items()) for each in hooks),
        )
        for name, part in module.named_modules()
    ]  # fmt: skip
