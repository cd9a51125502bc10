"""Synthetic regression and classification problems with a given spectrum: the members of a twin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.specs.checks import check_count, check_non_negative, check_positive

__all__ = ["Member", "coefficients", "label_noise", "rows", "thinned"]


@dataclass(frozen=True, slots=True)
class Member:
    """One assumption about what is unknown: how much signal there is, where it lies, how skewed the noise is.

    `signal_variance` is ‖Σ^{1/2}θ*‖²; coefficients are drawn ∝ N(0, 1)·λ^{alignment/2}.
    """

    signal_variance: float
    label_noise_variance: float
    alignment: float = 0.0
    skewed: bool = True

    def __post_init__(self) -> None:
        check_non_negative("signal_variance", self.signal_variance)
        check_non_negative("label_noise_variance", self.label_noise_variance)


def thinned(spectrum: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return at most `size` eigenvalues spread evenly over the sorted spectrum, with the same mean.

    >>> thinned(np.array([4.0, 3.0, 2.0, 1.0]), 2)
    array([3.33..., 1.66...])
    """
    ordered = np.sort(np.asarray(spectrum, dtype=np.float64))[::-1]
    size = check_count("size", size)
    if ordered.size <= size:
        return ordered
    groups = np.linspace(0, ordered.size, size + 1)
    picked = ordered[((groups[:-1] + groups[1:]) / 2).astype(int)]
    return np.asarray(picked * (ordered.mean() / max(picked.mean(), np.finfo(float).tiny)))


def rows(
    spectrum: NDArray[np.float64], n_records: int, *, tail: float = 0.0, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw rows e^{tail·g − tail²}·N(0, diag(spectrum)): second moments `spectrum`, lengths log-normal."""
    drawn = rng.standard_normal((n_records, spectrum.size)) * np.sqrt(spectrum)
    if tail > 0:
        drawn *= np.exp(tail * rng.standard_normal((n_records, 1)) - tail**2)
    return drawn


def coefficients(spectrum: NDArray[np.float64], member: Member, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw θ* with ‖Σ^{1/2}θ*‖² = signal_variance."""
    drawn = rng.standard_normal(spectrum.size) * np.maximum(spectrum, 1e-12) ** (member.alignment / 2)
    size = math.sqrt(float(spectrum @ np.square(drawn)))
    return np.asarray(drawn * (math.sqrt(member.signal_variance) / size if size > 0 else 0.0))


def label_noise(member: Member, n_records: int, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw centred label noise: log-normal (skewness 6.2) or Gaussian, of the member's variance."""
    normal = rng.standard_normal(n_records)
    if member.skewed:
        # exp(g) has mean e^{1/2} and variance e(e − 1).
        normal = (np.exp(normal) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1))
    return np.asarray(normal * math.sqrt(member.label_noise_variance))


def scaled_privacy(n_records: int, n_twin: int, shrunk: float, *, mu: float) -> float:
    """Return μ′ with n′μ′ = nμ/shrunk: the same privacy noise for a twin of d/shrunk dimensions and n′ rows.

    The noise adds ≍ κ²d²/(nμ)² to the risk, so the twin keeps d/(nμ).
    """
    return check_positive("mu", mu) * n_records / (n_twin * shrunk)
