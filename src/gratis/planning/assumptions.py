"""What the planner assumes where it is told nothing: a stated family, over which the worst regret is minimised.

How θ* may lie in the spectrum, where nobody says: spread over all directions, or along those of large variance.

⟨v_i, θ*⟩² ∝ λ_i^a. a = 0 is a θ* that knows nothing of Σ; a = 1 one that follows it, as images and standardised tables
tend to have it. A schedule for a = 0 goes far, to reach small eigenvalues, and pays noise on the way where a = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gratis.accounting import calibrate_mu
from gratis.planning.one_pass.prediction import OnePassProblem
from gratis.planning.one_pass.spectra import ExplicitSpectrum, IsotropicSpectrum, PowerLawSpectrum, Spectrum
from gratis.records.budget import Budget
from gratis.records.checks import check_count, check_non_negative
from gratis.records.errors import GratisError

__all__ = [
    "ALIGNMENTS",
    "MOST_ALIGNED",
    "R_SQUARED_FAMILY",
    "SPECTRUM_FAMILY",
    "LinearFacts",
    "aligned",
    "possible_alignments",
]

R_SQUARED_FAMILY = (0.3, 0.6, 0.9)
SPECTRUM_FAMILY: tuple[Spectrum, ...] = (IsotropicSpectrum(), PowerLawSpectrum(0.5))


# Least worst regret over a = 0 and 1, judged by the ODE on λ_i ∝ i^−1 (γ = .05, ρ = 1 and .2) and i^−1.5 (ρ = 1), with
# θ* at a = 0, ¼, ½, 1, 2 and R² = .3, .6, .9: mean regret .0106, .0130, .0048 of the target's variance against .0158,
# .0195, .0075 for a = 0 alone, worst .028, .032, .011 against .042, .047, .017. {¼, 1} has the same mean and a worse
# worst (.048, .042), and so has {½, 1}; a = 1 alone loses up to .3 where a is 0.
ALIGNMENTS = (0.0, 1.0)
# Far above what was judged (2): θ* lies in the largest eigenvalues alone, and higher powers of small ones underflow.
MOST_ALIGNED = 10.0


def aligned(spectrum: Spectrum, alignment: float) -> Spectrum:
    """Return the spectrum with θ* at ⟨v_i, θ*⟩² ∝ λ_i^alignment; 0 leaves it as it is.

    >>> aligned(PowerLawSpectrum(0.5), 1.0).source_exponent
    -1.0
    >>> aligned(ExplicitSpectrum((1.0, 3.0)), 1.0).signal_energies(2).tolist()
    [0.2, 0.6]
    """
    if alignment == 0:
        return spectrum
    if isinstance(spectrum, PowerLawSpectrum):
        return replace(spectrum, source_exponent=-alignment)
    if isinstance(spectrum, ExplicitSpectrum):
        values = np.array(spectrum.values)
        return replace(spectrum, energies=tuple(np.where(values > 0, values, 0.0) ** alignment))
    return spectrum


def possible_alignments(spectrum: Spectrum) -> tuple[float, ...]:
    """Return `ALIGNMENTS`, or 0 alone where they are one (Σ = I) or the spectrum says itself where θ* lies.

    >>> from gratis.planning.one_pass.spectra import IsotropicSpectrum
    >>> possible_alignments(IsotropicSpectrum()), possible_alignments(PowerLawSpectrum(0.5))
    ((0.0,), (0.0, 1.0))
    """
    unsaid = (isinstance(spectrum, PowerLawSpectrum) and spectrum.source_exponent == 0) or (
        isinstance(spectrum, ExplicitSpectrum) and spectrum.energies is None and len(set(spectrum.values)) > 1
    )
    return ALIGNMENTS if unsaid else (0.0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFacts:
    """Public facts of a regression. None means unknown: then a family is assumed and stated.

    `signal_variance` S = ‖Σ^{1/2}θ*‖² and `label_noise_variance` ζ² are in the units of the target. With both
    unknown the target has variance 1 and the share R² = S/(S + ζ²) runs over `R_SQUARED_FAMILY`; with one known,
    the other follows from the same shares. `alignment` a says how θ* lies in the spectrum, ⟨v_i, θ*⟩² ∝ λ_i^a
    (`gratis.planning.assumptions`).
    """

    n_records: int
    n_features: int
    budget: Budget
    signal_variance: float | None = None
    label_noise_variance: float | None = None
    spectrum: Spectrum | None = None
    alignment: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_records", check_count("n", self.n_records))
        object.__setattr__(self, "n_features", check_count("d", self.n_features))
        for name in ("signal_variance", "label_noise_variance"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check_non_negative(name.replace("_", "-"), value))
        if self.alignment is not None:
            object.__setattr__(self, "alignment", check_non_negative("alignment", self.alignment))
            if self.alignment > MOST_ALIGNED:
                raise GratisError(f"alignment must be at most {MOST_ALIGNED:g}, got {self.alignment:g}")

    @property
    def gamma(self) -> float:
        """d/n."""
        return self.n_features / self.n_records

    @property
    def mu(self) -> float:
        """What may be spent."""
        return calibrate_mu(self.budget)

    def variances(self) -> list[tuple[float, float]]:
        """(S, ζ²) of every member."""
        signal, noise = self.signal_variance, self.label_noise_variance
        if signal is not None and noise is not None:
            return [(signal, noise)]
        shares = R_SQUARED_FAMILY
        if signal is not None:
            return [(signal, signal * (1 - share) / share) for share in shares]
        if noise is not None:
            return [(noise * share / (1 - share), noise) for share in shares]
        return [(share, 1 - share) for share in shares]

    def spectra(self) -> Sequence[Spectrum]:
        """The spectra of the family."""
        return SPECTRUM_FAMILY if self.spectrum is None else (self.spectrum,)

    def members(self) -> list[tuple[float, float, Spectrum, float]]:
        """Every (S, ζ², spectrum, alignment) that is thought possible."""
        return [
            (s, z, spectrum, alignment)
            for spectrum in self.spectra()
            for alignment in (possible_alignments(spectrum) if self.alignment is None else (self.alignment,))
            for s, z in self.variances()
        ]

    def problems(self, *, mu: float | None = None) -> list[OnePassProblem]:
        """The members as problems of the deterministic equivalent."""
        return [
            OnePassProblem(
                gamma=self.gamma,
                rho=self.mu if mu is None else mu,
                label_noise_variance=noise,
                signal_variance=signal,
                spectrum=aligned(spectrum, alignment),
                neighbouring=self.budget.neighbouring,
            )
            for signal, noise, spectrum, alignment in self.members()
        ]

    def describe(self) -> tuple[str, ...]:
        """The assumptions in words, for the Prediction."""
        found = ["rows are independent, light-tailed and scaled so that E‖x‖² = d; y is linear in x plus noise"]
        if self.spectrum is None:
            found.append("spectrum unknown: " + ", ".join(s.label for s in SPECTRUM_FAMILY))
        else:
            found.append(f"spectrum {self.spectrum.label}")
        if self.alignment is not None:
            found.append(f"θ* along the spectrum's directions like λ^{self.alignment:g}")
        elif any(alignment for *_, alignment in self.members()):
            found.append("how θ* lies in the spectrum unknown: spread over all directions, or along the large ones")
        if self.signal_variance is None or self.label_noise_variance is None:
            found.append("share of the target's variance that is linear in x unknown: R² in " + str(R_SQUARED_FAMILY))
        else:
            found.append(
                f"signal variance {self.signal_variance:g}, label noise variance {self.label_noise_variance:g}"
            )
        return tuple(found)


def spectrum_from_sample(rows: np.ndarray) -> Spectrum:
    """Eigenvalues of the second moments of a public sample of rows."""
    sample = np.asarray(rows, dtype=np.float64)
    if sample.ndim != 2 or sample.size == 0 or not np.all(np.isfinite(sample)):
        raise GratisError("a public sample must be a non-empty matrix of finite numbers")
    values = np.linalg.eigvalsh(sample.T @ sample / sample.shape[0])
    return ExplicitSpectrum(tuple(np.maximum(values, 0.0).tolist()), name="public sample")
