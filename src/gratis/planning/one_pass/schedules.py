"""Schedules of one pass: rate η̃(t), clip level c(t) and their product a = η̃·c, which must not increase.

The least noise of amplification by iteration (S2, (4.2)) is the drop of a², so a(t) carries all the privacy and
η̃ = a/c only the descent. Time t = k/n is the share of rows used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.planning.one_pass.schedule_blocks import BlockSequences, block_sequences
from gratis.records.checks import check_non_negative, check_positive
from gratis.records.errors import GratisError

__all__ = [
    "FreeForm",
    "FreeFormWithClip",
    "Harmonic",
    "Polynomial",
    "Schedule",
    "StepwiseSchedule",
]

Array = NDArray[np.float64]


class Schedule:
    """What all schedules offer; times may be arrays in [0, 1]. One whose a(t) increases cannot be made."""

    __slots__ = ()

    def rate(self, time: ArrayLike) -> Array:
        """Return η̃(t)."""
        raise NotImplementedError

    def clip(self, time: ArrayLike) -> Array:
        """Return c(t)."""
        raise NotImplementedError

    def product(self, time: ArrayLike) -> Array:
        """Return a(t) = η̃(t)·c(t)."""
        return self.rate(time) * self.clip(time)

    @property
    def breakpoints(self) -> Array:
        """Times at which the schedule is not smooth; the ODE puts step ends there."""
        return np.empty(0)

    @property
    def is_stepwise(self) -> bool:
        """Whether a is constant between breakpoints, so that all noise arrives at them."""
        return False

    @property
    def label(self) -> str:
        """Name for reports."""
        raise NotImplementedError

    def sequences(self, n_records: int, *, dimension: int | None = None, max_blocks: int = 1024) -> BlockSequences:
        """Return step sizes, clip norms and products constant on at most max_blocks blocks of rows, for a trainer.

        Rates never exceed the plan's and a_k never increases (see `block_sequences`).
        """
        return block_sequences(self, n_records, dimension=dimension, max_blocks=max_blocks)


class _ConstantClip(Schedule):
    __slots__ = ()
    clip_level: float

    def clip(self, time: ArrayLike) -> Array:
        """Return c."""
        return np.full(np.shape(time), self.clip_level)


@dataclass(frozen=True, slots=True)
class Polynomial(_ConstantClip):
    """η̃ = η₀(1−t)^α at constant clip: α = 0 is output perturbation, α = ½ constant noise.

    η₀ = 0 is the schedule that does nothing.

    >>> Polynomial(alpha=1.0, initial_rate=2.0, clip_level=0.5).product([0.0, 0.5, 1.0]).tolist()
    [1.0, 0.5, 0.0]
    """

    alpha: float
    initial_rate: float
    clip_level: float

    def __post_init__(self) -> None:
        check_non_negative("alpha", self.alpha)
        check_non_negative("initial_rate", self.initial_rate)
        check_positive("clip_level", self.clip_level)

    def rate(self, time: ArrayLike) -> Array:
        """Return η̃(t)."""
        return np.asarray(self.initial_rate * (1.0 - np.asarray(time, dtype=np.float64)) ** self.alpha)

    @property
    def label(self) -> str:
        """The name that the command line reads."""
        return f"poly:{self.alpha:g}"


@dataclass(frozen=True, slots=True)
class Harmonic(_ConstantClip):
    """η̃ = c₁/(t + s) at constant clip; S2's Theorem 2 takes the offset s = γ·max(c₂, c₃/ρ)."""

    numerator: float
    offset: float
    clip_level: float

    def __post_init__(self) -> None:
        check_non_negative("numerator", self.numerator)
        check_positive("offset", self.offset)
        check_positive("clip_level", self.clip_level)

    def rate(self, time: ArrayLike) -> Array:
        """Return η̃(t)."""
        return np.asarray(self.numerator / (np.asarray(time, dtype=np.float64) + self.offset))

    @property
    def label(self) -> str:
        """The name that the command line reads."""
        return "harmonic"


def _checked_knots(times: tuple[float, ...], **columns: tuple[float, ...]) -> None:
    knots = np.asarray(times, dtype=np.float64)
    if knots.ndim != 1 or knots.size < 2 or knots[0] != 0 or knots[-1] != 1 or np.any(np.diff(knots) <= 0):
        raise GratisError("knot times must rise strictly from 0 to 1, with at least two knots")
    for name, column in columns.items():
        values = np.asarray(column, dtype=np.float64)
        if values.shape != knots.shape or not np.all(np.isfinite(values)) or np.any(values <= 0):
            raise GratisError(f"{name} must hold one positive finite number for each knot")
    if np.any(np.diff(np.asarray(columns["products"], dtype=np.float64)) > 0):
        raise GratisError("products must not increase from knot to knot: the noise is the drop of their squares")


def _log_linear(time: ArrayLike, times: tuple[float, ...], values: tuple[float, ...]) -> Array:
    return np.exp(np.interp(np.asarray(time, dtype=np.float64), times, np.log(values)))


class _Knots(Schedule):
    """log a(t) is linear between knots."""

    __slots__ = ()
    times: tuple[float, ...]
    products: tuple[float, ...]

    def product(self, time: ArrayLike) -> Array:
        """Return a(t)."""
        return _log_linear(time, self.times, self.products)

    @property
    def breakpoints(self) -> Array:
        """The knots."""
        return np.array(self.times)


@dataclass(frozen=True, slots=True)
class FreeForm(_Knots, _ConstantClip):
    """log a(t) linear between knots, at constant clip.

    >>> FreeForm((0.0, 1.0), (4.0, 1.0), 2.0).rate(0.5).round(12).tolist()
    1.0
    """

    times: tuple[float, ...]
    products: tuple[float, ...]
    clip_level: float

    def __post_init__(self) -> None:
        _checked_knots(self.times, products=self.products)
        check_positive("clip_level", self.clip_level)

    def rate(self, time: ArrayLike) -> Array:
        """Return a(t)/c."""
        return self.product(time) / self.clip_level

    @property
    def label(self) -> str:
        """The name that the command line reads."""
        return "free"


@dataclass(frozen=True, slots=True)
class FreeFormWithClip(_Knots):
    """log a(t) and log η̃(t) linear between knots, so the clip level c = a/η̃ varies as well.

    >>> FreeFormWithClip((0.0, 1.0), (4.0, 1.0), (2.0, 2.0)).clip([0.0, 1.0]).tolist()
    [2.0, 0.5]
    """

    times: tuple[float, ...]
    products: tuple[float, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        _checked_knots(self.times, products=self.products, rates=self.rates)

    def rate(self, time: ArrayLike) -> Array:
        """Return η̃(t)."""
        return _log_linear(time, self.times, self.rates)

    def clip(self, time: ArrayLike) -> Array:
        """Return a(t)/η̃(t)."""
        return self.product(time) / self.rate(time)

    @property
    def label(self) -> str:
        """The name that the command line reads."""
        return "free-clip"


@dataclass(frozen=True, slots=True)
class StepwiseSchedule(Schedule):
    """Rates and clips constant on blocks [edge_i, edge_{i+1}): what a trainer runs, with noise at block ends.

    >>> StepwiseSchedule((0.0, 0.5, 1.0), (2.0, 1.0), (1.0, 1.0)).product([0.49, 0.5, 1.0]).tolist()
    [2.0, 1.0, 1.0]
    """

    edges: tuple[float, ...]
    rates: tuple[float, ...]
    clips: tuple[float, ...]

    def __post_init__(self) -> None:
        edges, rates, clips = (np.asarray(v, dtype=np.float64) for v in (self.edges, self.rates, self.clips))
        if edges.ndim != 1 or edges.size < 2 or edges[0] != 0 or edges[-1] != 1 or np.any(np.diff(edges) <= 0):
            raise GratisError("block edges must rise strictly from 0 to 1")
        for name, values in (("rates", rates), ("clips", clips)):
            if values.shape != (edges.size - 1,) or not np.all(np.isfinite(values)) or np.any(values < 0):
                raise GratisError(f"{name} must hold one finite number >= 0 for each block")
        if np.any(np.diff(rates * clips) > 0):
            raise GratisError("rate times clip must not increase from block to block")

    @classmethod
    def from_blocks(cls, blocks: BlockSequences) -> StepwiseSchedule:
        """Return the schedule that a trainer with these blocks runs, to predict exactly that."""
        return cls(tuple(blocks.edges.tolist()), tuple(blocks.rates.tolist()), tuple(blocks.clip_levels.tolist()))

    def _block(self, time: ArrayLike) -> NDArray[np.intp]:
        place = np.searchsorted(self.edges, np.asarray(time, dtype=np.float64), side="right") - 1
        return np.clip(place, 0, len(self.rates) - 1)

    def rate(self, time: ArrayLike) -> Array:
        """Return η̃ of the block."""
        return np.asarray(np.array(self.rates)[self._block(time)])

    def clip(self, time: ArrayLike) -> Array:
        """Return c of the block."""
        return np.asarray(np.array(self.clips)[self._block(time)])

    @property
    def is_stepwise(self) -> bool:
        """Constant on blocks."""
        return True

    @property
    def breakpoints(self) -> Array:
        """The block edges."""
        return np.array(self.edges)

    @property
    def label(self) -> str:
        """Name for reports."""
        return "stepwise"
