"""What the planner assumes where it is told nothing: a stated family, over which the worst regret is minimised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gratis.accounting import calibrate_mu
from gratis.planning.one_pass.alignments import MOST_ALIGNED, aligned, possible_alignments
from gratis.planning.one_pass.prediction import OnePassProblem
from gratis.planning.one_pass.spectra import ExplicitSpectrum, IsotropicSpectrum, PowerLawSpectrum, Spectrum
from gratis.records.budget import Budget
from gratis.records.checks import check_count, check_non_negative
from gratis.records.errors import GratisError

__all__ = ["R_SQUARED_FAMILY", "SPECTRUM_FAMILY", "LinearFacts"]

R_SQUARED_FAMILY = (0.3, 0.6, 0.9)
SPECTRUM_FAMILY: tuple[Spectrum, ...] = (IsotropicSpectrum(), PowerLawSpectrum(0.5))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFacts:
    """Public facts of a regression. None means unknown: then a family is assumed and stated.

    `signal_variance` S = ‖Σ^{1/2}θ*‖² and `label_noise_variance` ζ² are in the units of the target. With both
    unknown the target has variance 1 and the share R² = S/(S + ζ²) runs over `R_SQUARED_FAMILY`; with one known,
    the other follows from the same shares. `alignment` a says how θ* lies in the spectrum, ⟨v_i, θ*⟩² ∝ λ_i^a
    (`gratis.planning.one_pass.alignments`).
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
