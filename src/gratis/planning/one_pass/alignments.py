"""How θ* may lie in the spectrum, where nobody says: spread over all directions, or along those of large variance.

⟨v_i, θ*⟩² ∝ λ_i^a. a = 0 is a θ* that knows nothing of Σ; a = 1 one that follows it, as images and standardised tables
tend to have it. A schedule for a = 0 goes far, to reach small eigenvalues, and pays noise on the way where a = 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gratis.planning.one_pass.spectra import ExplicitSpectrum, PowerLawSpectrum, Spectrum

__all__ = ["ALIGNMENTS", "MOST_ALIGNED", "aligned", "possible_alignments"]

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
