"""Spectra of gradients met in training: how fast they decay, what of them is noise, how many directions are enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.numerics.subspace_iteration import gram_matrix
from gratis.records.checks import check_count, check_non_negative
from gratis.records.errors import GratisError

__all__ = ["DecayFit", "GradientSpectrum", "fit_decay", "refuse_unless_gradients", "spectrum_of_gradients"]

_DEVIATIONS = 5.0
_SINGLE_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class DecayFit:
    """σ_k ≈ const·k^{−exponent} by least squares of logarithms over first ≤ k ≤ last; the same for the range's halves.

    `head` and `tail` are the exponents of the lower and upper half of ln k: if they differ, it is no power law.
    """

    exponent: float
    first: int
    last: int
    head: float
    tail: float
    root_mean_square_error: float


def fit_decay(singular_values: ArrayLike, *, first: int = 1, last: int | None = None) -> DecayFit:
    """Fit the decay exponent over ranks first … last (the last positive value when left out).

    >>> fit_decay(np.arange(1.0, 101) ** -0.6).exponent.__round__(6)
    0.6
    """
    values = np.asarray(singular_values, dtype=np.float64)
    end = int(np.count_nonzero(values > 0)) if last is None else check_count("last", last)
    first = check_count("first", first)
    if values.ndim != 1 or end > len(values) or end - first < 3 or not np.all(values[:end] > 0):
        raise GratisError("a decay fit needs at least 4 positive singular values in its range")
    x, y = np.log(np.arange(first, end + 1)), np.log(values[first - 1 : end])

    def slope(inside: NDArray[np.bool_]) -> float:
        return -float(np.polyfit(x[inside], y[inside], 1)[0]) if np.count_nonzero(inside) > 1 else math.nan

    line = np.polyfit(x, y, 1)
    middle = (x[0] + x[-1]) / 2
    error = float(np.sqrt(np.mean((y - np.polyval(line, x)) ** 2)))
    return DecayFit(-float(line[0]), first, end, slope(x <= middle), slope(x >= middle), error)


@dataclass(frozen=True, slots=True)
class GradientSpectrum:
    """Leading singular values of r recorded gradients of length p (one a row), and how sure they are.

    `noise_std` is the noise s in every coordinate of every gradient: 0 for exact ones, known for released ones.
    """

    singular_values: NDArray[np.float64]
    energy: float
    recorded: int
    dimension: int
    relative_error: float
    label: str = ""
    noise_std: float = 0.0

    def captured(self, k: int) -> float:
        """Share of the squared norm of all recorded gradients that lies in the top k directions."""
        return float(np.sum(self.singular_values[: check_count("k", k)] ** 2) / self.energy) if self.energy else 1.0

    def decay(self, *, first: int = 1, last: int | None = None) -> DecayFit:
        """Fit the decay; by default over ranks up to half of the recorded gradients.

        The last values of any r × p matrix fall because it has only r rows: they say nothing about the gradients.
        """
        end = min(len(self.singular_values), max(1, self.recorded // 2)) if last is None else last
        return fit_decay(self.singular_values, first=first, last=end)

    @property
    def noise_edge(self) -> float:
        """s(√p + √r + 5): r gradients of noise alone have a larger singular value with probability below e^−12.5.

        Reference: Davidson and Szarek 2001, Theorem II.13.
        """
        return self.noise_std * (math.sqrt(self.dimension) + math.sqrt(self.recorded) + _DEVIATIONS)

    def standing_out(self) -> int:
        """How many directions are larger than what noise alone shows; without noise, larger than float32's rounding."""
        floor = _SINGLE_ROUNDING * float(self.singular_values[0])
        return int(np.count_nonzero(self.singular_values > max(self.noise_edge, floor)))

    def signal_values(self) -> NDArray[np.float64]:
        """Singular values of the gradients without their noise, for the directions that stand out.

        The larger root of θ⁴ − (λ − (p+r)s²)θ² + prs⁴ = 0, λ the squared value with noise
        (Benaych-Georges and Nadakuditi 2012).
        """
        found = self.singular_values[: self.standing_out()]
        if not found.size:
            return found
        # In units of the largest, which is above the noise: squares of neither overflow.
        s2, p, r = (self.noise_std / float(found[0])) ** 2, self.dimension, self.recorded
        b = (found / found[0]) ** 2 - (p + r) * s2
        return np.asarray(found[0] * np.sqrt((b + np.sqrt(np.maximum(b**2 - 4 * p * r * s2**2, 0.0))) / 2))

    def kept(self, k: int) -> float:
        """Share of the squared length of the gradients without noise that training in the top k directions keeps.

        A direction found under noise is not the true one: its squared cosine with it is (1 − a²r/p)/(1 + a) at
        a = ps²/θ². What all directions together carry is the recorded energy less that of the noise, rps².
        """
        theta = self.signal_values()
        if not theta.size:
            return 0.0
        a = self.dimension * np.square(self.noise_std / theta)
        cosines = np.clip((1 - np.square(a) * self.recorded / self.dimension) / (1 + a), 0.0, 1.0)
        total = max(self.energy - self.recorded * self.dimension * self.noise_std**2, float(np.sum(theta**2)))
        return float(np.sum((theta**2 * cosines)[: check_count("k", k)]) / total)

    def recommended(self, share: float = 0.95) -> int | None:
        """Least k that keeps this share of the gradients; None if no k does."""
        reached = [k for k in range(1, self.standing_out() + 1) if self.kept(k) >= share]
        return reached[0] if reached else None

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "label": self.label,
            "singular_values": self.singular_values.tolist(),
            "recorded": self.recorded,
            "dimension": self.dimension,
            "relative_error": self.relative_error,
        }


def refuse_unless_gradients(rows: NDArray[Any]) -> None:
    """Refuse what is no matrix of finite numbers."""
    if rows.ndim != 2 or not rows.size or not np.all(np.isfinite(rows)):
        raise GratisError("gradients must be a matrix of finite numbers, one gradient a row")


def spectrum_of_gradients(rows: NDArray[Any], *, noise_std: float = 0.0, label: str = "") -> GradientSpectrum:
    """Return all singular values of gradients, one a row.

    >>> spectrum_of_gradients(np.diag([3.0, 4.0])).singular_values.tolist()
    [4.0, 3.0]
    """
    refuse_unless_gradients(rows)
    gram = gram_matrix(rows)
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0))
    r, p = rows.shape
    std = check_non_negative("noise_std", noise_std)
    return GradientSpectrum(values, float(np.trace(gram)), r, p, 0.0, label, std)
