"""Synthetic problems with a given spectrum: the members of a twin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.checks import check_count, check_finite, check_non_negative

__all__ = ["Member", "draw_coefficients", "draw_label_noise", "draw_rows", "thinned"]


@dataclass(frozen=True, slots=True)
class Member:
    """One assumption about what is unknown: how much signal there is, where it lies, how skewed the noise is.

    `signal_variance` is S = ‖Σ^{1/2}θ*‖²; θ* is drawn ∝ N(0, 1)·w^{alignment/2} along direction j, with w the
    weight of that direction (its eigenvalue before preconditioning: alignment 1 is a θ* isotropic in x).
    """

    signal_variance: float
    label_noise_variance: float
    alignment: float = 0.0
    skewed: bool = True

    def __post_init__(self) -> None:
        check_non_negative("signal_variance", self.signal_variance)
        check_non_negative("label_noise_variance", self.label_noise_variance)
        check_finite("alignment", self.alignment)


def thinned(spectrum: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return at most `size` eigenvalues spread evenly over the sorted spectrum.

    >>> thinned(np.array([4.0, 3.0, 2.0, 1.0]), 2)
    array([3., 1.])
    """
    ordered = np.sort(np.asarray(spectrum, dtype=np.float64))[::-1]
    size = check_count("size", size)
    if ordered.size <= size:
        return ordered
    edges = np.linspace(0, ordered.size, size + 1)
    return ordered[((edges[:-1] + edges[1:]) / 2).astype(int)]


def draw_rows(
    spectrum: NDArray[np.float64], n_records: int, *, tail: float = 0.0, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw rows e^{tail·g − tail²}·N(0, diag(spectrum)): second moments `spectrum`, lengths log-normal."""
    drawn = rng.standard_normal((n_records, spectrum.size)) * np.sqrt(spectrum)
    if tail > 0:
        drawn *= np.exp(tail * rng.standard_normal((n_records, 1)) - tail**2)
    return np.asarray(drawn)


def draw_coefficients(
    spectrum: NDArray[np.float64], weights: NDArray[np.float64], member: Member, *, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw θ* with ‖Σ^{1/2}θ*‖² equal to the member's signal variance (0 if the spectrum is)."""
    drawn = rng.standard_normal(spectrum.size) * weights ** (member.alignment / 2)
    size = math.sqrt(float(spectrum @ np.square(drawn)))
    return np.asarray(drawn * (math.sqrt(member.signal_variance) / size if size > 0 else 0.0))


def draw_label_noise(member: Member, shape: Any, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw centred label noise of the member's variance: log-normal (skewness 6.2), or Gaussian.

    Skewed on purpose: twins with Gaussian noise choose clip norms too small for skewed or 0/1 targets.
    """
    normal = rng.standard_normal(shape)
    if member.skewed:
        # exp(g) has mean e^{1/2} and variance e(e − 1).
        normal = (np.exp(normal) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1))
    return np.asarray(normal * math.sqrt(member.label_noise_variance))
