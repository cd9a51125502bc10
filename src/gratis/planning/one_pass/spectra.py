"""Covariance spectra with tr Σ = d, and how the signal θ* lies in them, quantised so that cost does not grow with d."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import roots_jacobi

from gratis.records.checks import check_count, check_finite
from gratis.records.errors import GratisError

__all__ = ["ExplicitSpectrum", "IsotropicSpectrum", "PowerLawSpectrum", "SpectralMeasure", "Spectrum", "parse_spectrum"]

Array = NDArray[np.float64]

# Quadrature runs in s = λ^{1/4}: e^{−λτ} is smooth in s at every scale of τ, so a few dozen nodes serve eight decades.
_ROOT = 4


@dataclass(frozen=True, slots=True)
class SpectralMeasure:
    """Atoms of a spectrum: R = Σ_j readout_j·D_j with D_j(0) = initial_j·R(0).

    Atoms with source_j = 1 receive gradient and private noise and their readout sums to 1 (tr Σ = d); an explicit
    signal may add atoms with source_j = 0, which only decay (the system is linear in D once R is known).
    smallest and largest are the ends of the spectrum itself, for the bounding ODEs.
    """

    eigenvalues: Array
    readout: Array
    initial: Array
    source: Array
    smallest: float
    largest: float

    def rows(self, initial_risk: float) -> Array:
        """Return the (5, atoms) table that `exponential_steps` reads."""
        scaled = self.initial * initial_risk
        return np.stack([self.eigenvalues, self.readout, scaled, self.source * self.eigenvalues, self.source])


def _measure(eigenvalues: Array, weights: Array, signal: Array, ends: tuple[float, float]) -> SpectralMeasure:
    # The quadrature keeps the mean to rounding; the last digits are restored because R(0) rests on them.
    mean = float(weights @ eigenvalues) / float(weights.sum())
    eigenvalues = eigenvalues / mean
    readout = weights * eigenvalues / float(weights @ eigenvalues)
    return SpectralMeasure(
        eigenvalues, readout, signal / float(readout @ signal), np.ones_like(readout), ends[0] / mean, ends[1] / mean
    )


@dataclass(frozen=True, slots=True)
class Spectrum:
    """A spectrum of mean eigenvalue 1; `source_exponent` δ' puts the signal at d⟨v_i, θ*⟩² ∝ λ_i^{−δ'}.

    δ' = 0 (the default) is an isotropic θ*: all D_i(0) = (d/2)⟨v_i, θ*⟩² equal.
    """

    def measure(self, atoms: int = 32) -> SpectralMeasure:
        """Return the spectrum as at most about `atoms` atoms."""
        raise NotImplementedError

    def eigenvalues(self, dimension: int) -> Array:
        """Return d ascending eigenvalues of mean 1 that follow the spectrum, for simulations."""
        raise NotImplementedError

    def signal_energies(self, dimension: int) -> Array:
        """Return ⟨v_i, θ*⟩² for S = 1 (they satisfy Σ λ_i⟨v_i, θ*⟩² = 1), in the order of `eigenvalues`."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Name for reports; `parse_spectrum` reads those of the named families back."""
        raise NotImplementedError

    def concentration(self, dimension: int) -> float:
        """Return tr Σ²/d²: the prediction needs ‖x‖² to concentrate, so this must be well below 1."""
        return float(np.mean(self.eigenvalues(dimension) ** 2) / dimension)


@dataclass(frozen=True, slots=True)
class IsotropicSpectrum(Spectrum):
    """Σ = I.

    >>> IsotropicSpectrum().measure().eigenvalues.tolist()
    [1.0]
    """

    def measure(self, atoms: int = 32) -> SpectralMeasure:
        """Return the single atom 1."""
        check_count("atoms", atoms)
        one = np.ones(1)
        return SpectralMeasure(one, one, one, one, 1.0, 1.0)

    def eigenvalues(self, dimension: int) -> Array:
        """Return ones."""
        return np.ones(check_count("dimension", dimension))

    def signal_energies(self, dimension: int) -> Array:
        """Return 1/d for each direction."""
        return np.full(check_count("dimension", dimension), 1.0 / dimension)

    @property
    def label(self) -> str:
        """The name of the family."""
        return "isotropic"


@dataclass(frozen=True, slots=True)
class PowerLawSpectrum(Spectrum):
    """Density ∝ λ^{−β} on (0, b], b = (2−β)/(1−β), β < 1 (S2, Assumption 3); D_i(0) ∝ λ_i^{−δ'}, β + δ' < 1.

    >>> measure = PowerLawSpectrum(0.3).measure(24)
    >>> round(float(measure.readout.sum()), 12), round(measure.largest, 4)
    (1.0, 2.4286)
    """

    beta: float
    source_exponent: float = 0.0

    def __post_init__(self) -> None:
        beta = check_finite("beta", self.beta)
        source = check_finite("source_exponent", self.source_exponent)
        if beta >= 1:
            raise GratisError(f"a power-law spectrum needs beta < 1 to have a mean, got {beta}")
        if beta + source >= 1:
            raise GratisError(f"beta + source_exponent must be below 1, got {beta + source}; lower one of them")

    @property
    def upper_end(self) -> float:
        """b: the largest eigenvalue."""
        return (2 - self.beta) / (1 - self.beta)

    def measure(self, atoms: int = 32) -> SpectralMeasure:
        """Return Gauss–Jacobi atoms in (λ/b)^{1/4}."""
        nodes, weights = _power_nodes(self.beta, check_count("atoms", atoms, minimum=2))
        eigenvalues = self.upper_end * nodes
        return _measure(eigenvalues, weights, eigenvalues**-self.source_exponent, (0.0, self.upper_end))

    def eigenvalues(self, dimension: int) -> Array:
        """Return the quantiles at (i − ½)/d, rescaled to mean 1."""
        quantiles = (np.arange(check_count("dimension", dimension)) + 0.5) / dimension
        values = quantiles ** (1 / (1 - self.beta))
        return np.asarray(values / values.mean())

    def signal_energies(self, dimension: int) -> Array:
        """Return energies ∝ λ^{−δ'}."""
        eigenvalues = self.eigenvalues(dimension)
        energies = eigenvalues**-self.source_exponent
        return np.asarray(energies / (eigenvalues @ energies))

    @property
    def label(self) -> str:
        """The name of the family with its exponent."""
        tail = f",source {self.source_exponent:g}" if self.source_exponent else ""
        return f"power:{self.beta:g}{tail}"


@lru_cache(maxsize=64)
def _power_nodes(beta: float, atoms: int) -> tuple[Array, Array]:
    # λ/b = s⁴ turns λ^{−β}dλ into s^{4(1−β)−1}ds on (0, 1].
    points, weights = roots_jacobi(atoms, 0.0, _ROOT * (1 - beta) - 1)
    return (0.5 * (1 + points)) ** _ROOT, weights


@dataclass(frozen=True, slots=True)
class ExplicitSpectrum(Spectrum):
    """Given eigenvalues, rescaled to mean 1, and optionally the energies ⟨v_i, θ*⟩² (only their ratios count).

    >>> ExplicitSpectrum((3.0, 1.0)).eigenvalues(2).tolist()
    [0.5, 1.5]
    """

    values: tuple[float, ...] = field(repr=False)
    energies: tuple[float, ...] | None = field(default=None, repr=False)
    name: str = "explicit"

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or values.min() < 0:
            raise GratisError("eigenvalues must be a non-empty list of finite numbers >= 0; check the spectrum given")
        if values.max() == 0:
            raise GratisError("at least one eigenvalue must be positive, got only zeros")
        object.__setattr__(self, "values", tuple(values.tolist()))
        if self.energies is not None:
            energies = np.asarray(self.energies, dtype=np.float64)
            if energies.shape != values.shape or not np.all(np.isfinite(energies)) or energies.min() < 0:
                raise GratisError("energies must be one finite number >= 0 for each eigenvalue")
            if not energies @ values > 0:
                raise GratisError("energies must put some signal on a positive eigenvalue, got none")
            object.__setattr__(self, "energies", tuple(energies.tolist()))

    def _sorted(self) -> tuple[Array, Array]:
        values = np.array(self.values)
        energies = np.ones_like(values) if self.energies is None else np.array(self.energies)
        order = np.argsort(values, kind="stable")
        return values[order] / values.mean(), energies[order]

    def measure(self, atoms: int = 32) -> SpectralMeasure:
        """Return Gauss atoms in λ^{1/4} of the counting measure, and of the signal where energies are given."""
        values, energies = self._sorted()
        check_count("atoms", atoms, minimum=2)
        ends = (float(values[0]), float(values[-1]))
        if len(values) <= atoms:
            return _measure(values, np.ones_like(values), energies, ends)
        nodes, weights = gauss_atoms(values ** (1 / _ROOT), np.ones_like(values), atoms)
        bulk = _measure(nodes**_ROOT, weights, np.ones_like(nodes), ends)
        if self.energies is None:
            return bulk
        nodes, shares = gauss_atoms(values ** (1 / _ROOT), values * energies, atoms)
        return SpectralMeasure(
            np.concatenate([bulk.eigenvalues, nodes**_ROOT]),
            np.concatenate([bulk.readout, shares / shares.sum()]),
            np.concatenate([np.zeros_like(bulk.initial), np.ones_like(nodes)]),
            np.concatenate([bulk.source, np.zeros_like(nodes)]),
            *ends,
        )

    def eigenvalues(self, dimension: int) -> Array:
        """Return the values themselves, or their quantiles when the dimension differs."""
        values, _ = self._sorted()
        return self._at(values, dimension) if dimension == len(values) else _mean_one(self._at(values, dimension))

    def signal_energies(self, dimension: int) -> Array:
        """Return the energies, or their quantiles along the spectrum when the dimension differs."""
        energies = self._at(self._sorted()[1], dimension)
        return np.asarray(energies / (self.eigenvalues(dimension) @ energies))

    @staticmethod
    def _at(sorted_values: Array, dimension: int) -> Array:
        count = len(sorted_values)
        quantiles = (np.arange(check_count("dimension", dimension)) + 0.5) / dimension
        return np.interp(quantiles, (np.arange(count) + 0.5) / count, sorted_values)

    @property
    def label(self) -> str:
        """The given name."""
        return self.name


def _mean_one(values: Array) -> Array:
    return values / values.mean()


def gauss_atoms(points: Array, weights: Array, atoms: int) -> tuple[Array, Array]:
    """Return the Gauss quadrature of the discrete measure Σ weights·δ_points with at most `atoms` nodes (Lanczos)."""
    keep = weights > 0
    points, weights = points[keep], weights[keep] / weights[keep].sum()
    basis = np.zeros((min(atoms, points.size), points.size))
    diagonal, beside = np.zeros(len(basis)), np.zeros(len(basis))
    vector = np.sqrt(weights)
    for k in range(len(basis)):
        basis[k] = vector
        image = points * vector
        diagonal[k] = vector @ image
        # Twice is enough: orthogonality to rounding, so no ghost copies of the end points.
        for _ in range(2):
            image -= basis[: k + 1].T @ (basis[: k + 1] @ image)
        beside[k] = np.linalg.norm(image)
        if beside[k] < 1e-13 * points.max() or k == len(basis) - 1:
            break
        vector = image / beside[k]
    nodes, vectors = np.linalg.eigh(np.diag(diagonal[: k + 1]) + np.diag(beside[:k], 1) + np.diag(beside[:k], -1))
    return np.maximum(nodes, 0.0), vectors[0] ** 2


def parse_spectrum(text: str) -> Spectrum:
    """Read "isotropic" or "power:BETA".

    >>> parse_spectrum("power:0.3").label
    'power:0.3'
    """
    if text == "isotropic":
        return IsotropicSpectrum()
    family, _, value = text.partition(":")
    if family == "power":
        try:
            return PowerLawSpectrum(float(value))
        except ValueError as error:
            if isinstance(error, GratisError):
                raise
    raise GratisError(f"unknown spectrum {text!r}; expected 'isotropic' or 'power:BETA' with BETA < 1")
