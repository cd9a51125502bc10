"""The public facts of one-pass linear regression."""

from __future__ import annotations

from dataclasses import dataclass, field

from gratis.planning.one_pass.spectra import IsotropicSpectrum, Spectrum
from gratis.records.checks import check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

__all__ = ["OnePassProblem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePassProblem:
    """Public facts of one-pass linear regression: all that the deterministic equivalent needs.

    Parameters
    ----------
    gamma: d/n.
    rho: GDP parameter of the release (infinite: no privacy).
    label_noise_variance: ζ².
    signal_variance: S = ‖Σ^{1/2}θ*‖², so that R(0) = S/2 at θ = 0.
    spectrum: eigenvalues of Σ (tr Σ = d) and how θ* lies in them.
    neighbouring: the relation; its sensitivity factor κ scales the noise.

    >>> OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25).initial_risk
    0.5
    """

    gamma: float
    rho: float
    label_noise_variance: float
    signal_variance: float = 1.0
    spectrum: Spectrum = field(default_factory=IsotropicSpectrum)
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE

    def __post_init__(self) -> None:
        for name, value in (
            ("gamma", check_positive("gamma", self.gamma)),
            ("rho", check_positive("rho", self.rho, allow_infinite=True)),
            ("label_noise_variance", check_non_negative("label_noise_variance", self.label_noise_variance)),
            ("signal_variance", check_non_negative("signal_variance", self.signal_variance)),
            ("neighbouring", Neighbouring.parse(self.neighbouring)),
        ):
            object.__setattr__(self, name, value)
        if not isinstance(self.spectrum, Spectrum):
            raise GratisError(f"spectrum must be a Spectrum such as IsotropicSpectrum(), got {self.spectrum!r}")

    @property
    def initial_risk(self) -> float:
        """R(0) = S/2: the excess risk of predicting the mean."""
        return 0.5 * self.signal_variance

    @property
    def rate_cap(self) -> float:
        """2/γ: a higher rate only adds noise."""
        return 2.0 / self.gamma

    @property
    def noise_scale(self) -> float:
        """(κ²/2)·γ²/ρ²: the risk added for each unit that a² drops."""
        return 0.5 * (self.neighbouring.sensitivity_factor * self.gamma / self.rho) ** 2
