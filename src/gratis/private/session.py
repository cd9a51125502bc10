"""A session: rows, noise, and the list of what was released. The only place where a sum over records meets noise.

A model is a function of a session. `run` makes its releases on records; `plan` makes the list of them on a table in
which nobody is, so the plan is the run and cannot say something else (docs/proofs/sessions.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import unit_descent_event
from gratis.mechanisms.clipped_gradient import clipped_outer_sum, row_norms, sanitised, usable_rows
from gratis.mechanisms.location_scale import Standardiser, plan_standardisation, release_location_scale
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.private.bounds import Bound, ball
from gratis.private.null_rows import null_rows
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import Composition, FullBatchDescent, GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs

__all__ = ["Planned", "PrivateRows", "Released", "Session", "Share", "plan", "run"]

Array = NDArray[Any]
T = TypeVar("T")
_DEPARTED = "this model departs from its plan: nothing was released from here on, and what was reserved stays spent"
_LAST_DIGIT = 1e-12  # of μ: less than this is lost, so that roundings cannot push the sum of squares above μ²


class PrivateRows:
    """Records that a model may map row by row and add up through its session, and cannot read."""

    __slots__ = ("_prepared", "_rows", "n_features")

    def __init__(self, rows: Rows) -> None:
        self._rows, self.n_features = rows, rows.n_features
        self._prepared: Rows | None = None

    def mapped(self, change: Callable[..., tuple[Array, ...]], *, n_features: int | None = None) -> PrivateRows:
        """The rows under `change`, which gets arrays of some records and must treat every record by itself."""
        with np.errstate(all="ignore"):
            return PrivateRows(self._rows.mapped(change, n_features=n_features))

    def targets(self) -> PrivateRows:
        """The targets alone, as a table of one column."""
        return PrivateRows(self._rows.targets())

    def _total(self, contribution: Callable[..., Array], bound: Bound) -> Array:
        return self._rows.total(_Bounded(contribution, bound))

    def _clipped_gradient(self, factors: Callable[[Array, Array], Array], clip_norm: float) -> Array:
        if self._prepared is None:  # norms are computed once, if rows are held in memory
            self._prepared = self._rows.mapped(_with_norms)
        return self._prepared.clipped_total(_ClippedOuter(factors, clip_norm))


@dataclass(frozen=True, slots=True)
class _Bounded:
    """A chunk's contributions, bounded record by record and added up. No part of a session: it is sent to workers."""

    contribution: Callable[..., Array]
    bound: Bound

    def __call__(self, *chunk: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.bound.total(np.asarray(self.contribution(*chunk)), _present(chunk))


@dataclass(frozen=True, slots=True)
class _ClippedOuter:
    """Σ clip₁(z fᵀ/C) over a chunk; `each` consecutive rows are a person, whose mean is clipped."""

    factors: Callable[[Array, Array], Array]
    clip_norm: float

    def __call__(self, Z: Array, norms: Array, t: Array, each: int = 1) -> Array:
        with np.errstate(all="ignore"):
            return clipped_outer_sum(Z, norms, self.factors(Z, t), self.clip_norm, each)


def _present(chunk: tuple[Array, ...]) -> NDArray[np.bool_]:
    """Which records are there: those whose target, the last array of (X, y), is finite."""
    return np.isfinite(chunk[-1]) if chunk[-1].ndim == 1 else np.ones(len(chunk[0]), dtype=bool)


def _without_null_records(X: Array, *others: Array) -> tuple[Array, ...]:
    """The same with no features where there is no target: scales are of features alone."""
    present = _present((X, *others))
    return (X if present.all() else np.where(present[:, None], X, np.nan), *others)


def _with_norms(Z: Array, t: Array) -> tuple[Array, Array, Array]:
    present = usable_rows(Z) & np.isfinite(t)
    clean = sanitised(Z, present)
    return clean, row_norms(clean), np.where(present, t, 0.0)


@dataclass(frozen=True, slots=True)
class Released:
    """One release: its event, and the shape of what is released, which no event says and a model must not choose."""

    event: GaussianRelease | FullBatchDescent  # the latter of one step
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """The releases of a model in their order."""

    releases: tuple[Released, ...]

    @property
    def event(self) -> Composition:
        """What is reserved and certified: equal releases in turn are one event, with a count or of so many steps.

        >>> one = GaussianRelease(sensitivity=1.0, noise_std=2.0, neighbouring="zero-out", label="step")
        >>> [leaf.count for leaf in Planned((Released(one, (3,)),) * 5).event.leaves()]
        [5]
        """
        runs = groupby(self.releases, key=lambda release: release.event)
        return Composition(tuple(_repeated(event, len(tuple(equal))) for event, equal in runs))


def _repeated(event: GaussianRelease | FullBatchDescent, times: int) -> GaussianRelease | FullBatchDescent:
    if isinstance(event, GaussianRelease):
        return replace(event, count=times)
    rates, stds = (Runs.constant(runs.values[0], times) for runs in (event.learning_rates, event.noise_stds))
    return replace(event, learning_rates=rates, noise_stds=stds)


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """A part of the budget that `Session.split` has fixed: releases of together at most `mu`."""

    mu: float
    name: str

    def over(self, releases: int) -> Share:
        """The same for each of so many releases: μ/√T."""
        return Share(self.mu / math.sqrt(check_count("releases", releases)), self.name)


class Session:
    """What a model may do with records: map them row by row, and release bounded means of them.

    **Guarantee**: let a model touch records through its session alone, with maps, contributions and factors that treat
    every record by itself and use public and released values only. Then whatever it returns satisfies the event of the
    session, and that of its plan if there is one: every release is a Gaussian mechanism whose sensitivity is the
    bound's (`gratis.private.bounds`), whose μ was fixed by `split` before the first release, and whose event and shape
    were found equal to the plan's before noise was drawn. Records whose target is not finite contribute nothing.
    """

    def __init__(
        self, rows: Rows, relation: Neighbouring, noise: NoiseSource | None, *, planned: Planned | None = None
    ) -> None:
        self.rows, self.relation, self.n_records = PrivateRows(rows), relation, rows.n_rows
        self._noise = noise
        self._planned, self._releases = planned, list[Released]()
        self._left: dict[str, float] | None = None
        self._closed = False

    def split(self, mu: float, **shares: float) -> dict[str, Share]:
        """Divide μ² in proportion to `shares`; those of 0 get none. Once, before the first release.

        >>> session = Session(null_rows(10, 1), Neighbouring.ZERO_OUT, None)
        >>> part = session.split(1.0, scales=0.36, level=0.0, descent=0.64)
        >>> {name: round(share.mu, 3) for name, share in part.items()}
        {'scales': 0.6, 'descent': 0.8}
        """
        if self._left is not None:
            raise GratisError("a session's budget is split once, before its first release")
        check_positive("mu", mu)
        whole = sum(shares.values())
        mus = {name: mu * math.sqrt(share / whole) * (1 - _LAST_DIGIT) for name, share in shares.items() if share > 0}
        self._left = {name: part**2 * (1 + _LAST_DIGIT) for name, part in mus.items()}
        return {name: Share(part, name) for name, part in mus.items()}

    def mean(
        self,
        contribution: Callable[..., Array],
        bound: Bound,
        share: Share,
        label: str,
        *,
        rows: PrivateRows | None = None,
    ) -> tuple[Array, float]:
        """(1/n)Σ of bounded contributions, with noise, and the deviation of that noise.

        `contribution` maps arrays of m records, (X, y) or what `rows` made of them, to (m, bound.size). What is not
        finite adds nothing.
        """
        rows = rows or self.rows
        event = self._event(bound, share, label)
        self._admit(event, bound.shape, share, share.mu)
        std = event.noise_std
        return self._released(lambda: rows._total(contribution, bound), std, bound.shape), std

    def gradient(
        self,
        rows: PrivateRows,
        factors: Callable[[Array, Array], Array],
        share: Share,
        label: str,
        *,
        clip_norm: float,
        outputs: int = 1,
    ) -> tuple[Array, float]:
        """(1/n)Σ clip_C(z fᵀ) with noise, (D, outputs), and its deviation: no gradient of a record is stored.

        `factors` maps (Z, t) to f, (m, outputs): residuals, or probabilities minus labels. The event is in units of C,
        which may depend on what was released. Of a person with many rows the mean gradient is clipped.
        """
        shape = (rows.n_features, outputs)
        inflation = ball(sum(shape)).inflation(self.n_records, self.relation)
        event = unit_descent_event(
            self.n_records, 1, mu=share.mu, neighbouring=self.relation, rounding_inflation=inflation, label=label
        )
        self._admit(event, shape, share, share.mu)
        std = event.noise_stds.values[0]
        found = self._released(lambda: rows._clipped_gradient(factors, clip_norm), std, shape)
        return clip_norm * found, clip_norm * std

    def standardise(
        self,
        rows: PrivateRows,
        share: Share,
        label: str,
        *,
        impute: bool = False,
        tail: float = 0.02,
        headroom: float = 1.0,
    ) -> tuple[Standardiser, float]:
        """Location and scale of every column, in four releases, and the deviation of a centre in units of the scale."""
        made = plan_standardisation(
            self.n_records, rows.n_features, mu=share.mu, neighbouring=self.relation, tail=tail, headroom=headroom,
            label=label,
        )  # fmt: skip
        for event in made.events:
            self._admit(event, (rows.n_features,), share, event.sensitivity / event.noise_std)

        def release(noise: NoiseSource) -> Standardiser:
            counted = rows._rows.mapped(_without_null_records)
            return release_location_scale(counted, made, noise=noise, impute=impute)

        return self._located(release, rows.n_features, impute), made.centre_error

    def computed(self, function: Callable[[], T], *, planned: T) -> T:
        """What a costly `function` of released values gives; a plan takes `planned`: no event may depend on it."""
        return function()

    @property
    def released(self) -> Planned:
        """What was released so far."""
        return Planned(tuple(self._releases))

    def finish(self) -> None:
        """Refuse to publish less than was planned: the certificate names the plan's releases."""
        if self._closed or self._planned not in (None, self.released):
            raise GratisError(_DEPARTED)

    def _event(self, bound: Bound, share: Share, label: str) -> GaussianRelease:
        sensitivity = bound.sensitivity(self.n_records, self.relation)
        return GaussianRelease(
            sensitivity=sensitivity, noise_std=sensitivity / share.mu, neighbouring=self.relation, label=label
        )

    def _admit(
        self, event: GaussianRelease | FullBatchDescent, shape: tuple[int, ...], share: Share, mu: float
    ) -> None:
        """Compare with the plan and take it from its share; a model that departs once gets nothing more."""
        left, place = self._left or {}, len(self._releases)
        release, square = Released(event, shape), mu**2
        paid = share.name in left and square <= left[share.name] * (1 + _LAST_DIGIT)
        as_planned = self._planned is None or self._planned.releases[place : place + 1] == (release,)
        if self._closed or not paid or not as_planned:
            self._closed = True
            raise GratisError(_DEPARTED if paid else f"the share of {share.name!r} does not pay for {event.label!r}")
        left[share.name] -= square
        self._releases.append(release)

    def _released(self, total: Callable[[], Array], noise_std: float, shape: tuple[int, ...]) -> Array:
        """Σ/n and noise. `shape` is public."""
        assert self._noise is not None
        return self._noise.release(np.reshape(total() / self.n_records, shape), noise_std)

    def _located(self, release: Callable[[NoiseSource], Standardiser], columns: int, impute: bool) -> Standardiser:
        assert self._noise is not None
        return release(self._noise)


class _Imagined(Session):
    """A session on a table in which nobody is: what is "released" is imagined, and no noise is drawn."""

    def __init__(self, n_records: int, n_columns: int, relation: Neighbouring, answers: Array) -> None:
        super().__init__(null_rows(n_records, n_columns), relation, None)
        self._answers = answers

    def computed(self, function: Callable[[], T], *, planned: T) -> T:
        """The stand-in."""
        return planned

    def _released(self, total: Callable[[], Array], noise_std: float, shape: tuple[int, ...]) -> Array:
        with np.errstate(all="ignore"):
            total()  # a model that fails on null records fails here, before anything is spent
        return self._imagine(shape) * noise_std

    def _located(self, release: Callable[[NoiseSource], Standardiser], columns: int, impute: bool) -> Standardiser:
        scale = np.exp(np.clip(self._imagine((columns,)), -9, 9))
        return Standardiser(self._imagine((columns,)), scale, 4 * scale, impute=impute)

    def _imagine(self, shape: tuple[int, ...]) -> Array:
        size = math.prod(shape)
        return np.tile(self._answers, -(-size // len(self._answers)))[:size].reshape(shape)


# What a plan imagines to be released, in deviations of the noise: nothing, usual noise, and far more of either sign.
_ANSWERS = (np.zeros(1), np.array([0.3, -1.1, 0.7, 1.9, -0.2, -0.6, 0.1]), np.array([1e9, -1e9, 1e3]))


def plan(model: Callable[[Session], Any], n_records: int, n_columns: int, relation: Neighbouring) -> Planned:
    """Return what a run of `model` releases, from public sizes: its events on a table in which nobody is.

    Time and memory do not depend on n. Refused is a model whose releases depend on what it released before: on the way
    it is told several things, which records that are there could make it see.

    >>> from gratis.private.bounds import cube
    >>> def shares(session):
    ...     part = session.split(0.5, shares=1.0)
    ...     return session.mean(lambda X, y: X > 0, cube(2), part["shares"], "shares of positive entries")[0]
    >>> [leaf.label for leaf in plan(shares, 10**9, 2, Neighbouring.REPLACE_ONE).event.leaves()]
    ['shares of positive entries']
    >>> rows = Rows.held(np.array([[1.0, -1.0], [2.0, 3.0]] * 500), np.zeros(1000))
    >>> planned = plan(shares, 1000, 2, Neighbouring.REPLACE_ONE)
    >>> run(shares, rows, Neighbouring.REPLACE_ONE, NoiseSource.insecure(0), planned=planned).round(1).tolist()
    [1.0, 0.5]
    """
    found = []
    for answers in _ANSWERS:
        session = _Imagined(n_records, n_columns, relation, answers)
        with np.errstate(all="ignore"):
            model(session)
        found.append(session.released)
    if any(planned != found[0] for planned in found):
        raise GratisError("the releases of this model depend on what was released before: sizes must be public")
    return found[0]


def run(
    model: Callable[[Session], T], rows: Rows, relation: Neighbouring, noise: NoiseSource, *, planned: Planned
) -> T:
    """Run `model` on records: each release is compared with the plan's before its noise is drawn."""
    session = Session(rows, relation, noise, planned=planned)
    with np.errstate(all="ignore"):
        released = model(session)
    session.finish()
    return released
