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
    "Monotonicity",
    "Polynomial",
    "Schedule",
    "StepwiseSchedule",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Monotonicity:
    """Certificate that a(t) does not increase: how it was verified, and the largest increase found (0 if none).

    method is "analytic" (the formula is monotone for these parameters), "knots" (log-linear between knots, so the
    knots decide) or "blocks" (constant on blocks, so the block values decide). points says how many values decided.
    """

    non_increasing: bool
    method: str
    points: int
    largest_increase: float = 0.0


def _verified(values: Array, method: str) -> Monotonicity:
    rise = float(np.max(np.diff(values), initial=0.0))
    return Monotonicity(rise <= 0.0, method, values.size, max(rise, 0.0))


class Schedule:
    """What all schedules offer; times may be arrays in [0, 1]."""

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

    def monotonicity(self) -> Monotonicity:
        """Return the certificate that a(t) does not increase."""
        raise NotImplementedError

    @property
    def is_non_increasing(self) -> bool:
        """Whether a(t) does not increase: the condition of the privacy proof's least noise."""
        return self.monotonicity().non_increasing

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


@dataclass(frozen=True, slots=True)
class Polynomial(Schedule):
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

    def clip(self, time: ArrayLike) -> Array:
        """Return c."""
        return np.full(np.shape(time), self.clip_level)

    def monotonicity(self) -> Monotonicity:
        """A power of 1−t with α ≥ 0 falls."""
        return Monotonicity(True, "analytic", 0)

    @property
    def label(self) -> str:
        """The name that the command line reads."""
        return f"poly:{self.alpha:g}"


@dataclass(frozen=True, slots=True)
class Harmonic(Schedule):
    """η̃ = c₁/(t + s) at constant clip, with offset s = γ·max(c₂, c₃/ρ) (see `from_constants`).

    >>> Harmonic.from_constants(1.0, 2.0, 1.0, gamma=0.1, rho=0.25, clip_level=1.0).offset
    0.4
    """

    numerator: float
    offset: float
    clip_level: float

    def __post_init__(self) -> None:
        check_non_negative("numerator", self.numerator)
        check_positive("offset", self.offset)
        check_positive("clip_level", self.clip_level)

    @classmethod
    def from_constants(
        cls, c1: float, c2: float, c3: float, *, gamma: float, rho: float, clip_level: float
    ) -> Harmonic:
        """Build from the constants of S2's Theorem 2."""
        check_positive("rho", rho, allow_infinite=True)
        return cls(c1, check_positive("gamma", gamma) * max(c2, c3 / rho), clip_level)

    def rate(self, time: ArrayLike) -> Array:
        """Return η̃(t)."""
        return np.asarray(self.numerator / (np.asarray(time, dtype=np.float64) + self.offset))

    def clip(self, time: ArrayLike) -> Array:
        """Return c."""
        return np.full(np.shape(time), self.clip_level)

    def monotonicity(self) -> Monotonicity:
        """1/(t + s) falls."""
        return Monotonicity(True, "analytic", 0)

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


@dataclass(frozen=True, slots=True)
class FreeForm(Schedule):
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

    def clip(self, time: ArrayLike) -> Array:
        """Return c."""
        return np.full(np.shape(time), self.clip_level)

    def product(self, time: ArrayLike) -> Array:
        """Return a(t)."""
        return _log_linear(time, self.times, self.products)

    def monotonicity(self) -> Monotonicity:
        """The knots decide."""
        return _verified(np.array(self.products), "knots")

    @property
    def breakpoints(self) -> Array:
        """The knots."""
        return np.array(self.times)

    @property
    def label(self) -> str:
        """The name that the command line reads."""
        return "free"


@dataclass(frozen=True, slots=True)
class FreeFormWithClip(Schedule):
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

    def product(self, time: ArrayLike) -> Array:
        """Return a(t)."""
        return _log_linear(time, self.times, self.products)

    def monotonicity(self) -> Monotonicity:
        """The knots decide."""
        return _verified(np.array(self.products), "knots")

    @property
    def breakpoints(self) -> Array:
        """The knots."""
        return np.array(self.times)

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
        if not self.is_non_increasing:
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

    def monotonicity(self) -> Monotonicity:
        """The block values decide."""
        return _verified(np.array(self.rates) * np.array(self.clips), "blocks")

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
