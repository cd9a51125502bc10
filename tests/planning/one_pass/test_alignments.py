"""How θ* lies in the spectrum: a member of the family where nobody says."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.planning.assumptions import LinearFacts, aligned, possible_alignments
from gratis.planning.one_pass.prediction import predict_final_risks
from gratis.planning.one_pass.schedule_optimisation import Family, optimise_schedule
from gratis.planning.one_pass.schedule_regret import optimise_worst_regret
from gratis.planning.one_pass.spectra import ExplicitSpectrum, IsotropicSpectrum, PowerLawSpectrum, Spectrum
from gratis.records.budget import Budget
from gratis.records.errors import GratisError

STEEP = ExplicitSpectrum(tuple((np.arange(1, 61) ** -1.0).tolist()))


def facts(spectrum: Spectrum | None, **known: float) -> LinearFacts:
    return LinearFacts(n_records=1200, n_features=60, budget=Budget(mu=0.5), spectrum=spectrum, signal_variance=0.9,
                       label_noise_variance=0.1, **known)  # type: ignore[arg-type] # fmt: skip


def test_members_differ_in_alignment_only_where_it_is_unsaid() -> None:
    assert [m[3] for m in facts(STEEP).members()] == [0.0, 1.0]
    assert [m[3] for m in facts(None).members()] == [0.0, 0.0, 1.0]
    assert [m[3] for m in facts(IsotropicSpectrum()).members()] == [0.0]
    assert [m[3] for m in facts(STEEP, alignment=2.0).members()] == [2.0]
    assert possible_alignments(aligned(STEEP, 1.0)) == (0.0,)
    assert possible_alignments(PowerLawSpectrum(0.3, 0.2)) == (0.0,)
    assert any("θ* lies" in words for words in facts(STEEP).describe())
    assert not any("θ* lies" in words for words in facts(IsotropicSpectrum()).describe())
    for beyond in (-1.0, 10.1, 1e4):
        with pytest.raises(GratisError, match="alignment"):
            facts(STEEP, alignment=beyond)
    assert [m[3] for m in facts(STEEP, alignment=10.0).members()] == [10.0]


def test_energies_follow_the_eigenvalues() -> None:
    for spectrum in (STEEP, PowerLawSpectrum(0.3)):
        values, energies = aligned(spectrum, 1.0).eigenvalues(60), aligned(spectrum, 1.0).signal_energies(60)
        assert np.allclose(energies / values, energies[-1] / values[-1])
        assert values @ energies == pytest.approx(1.0)


def test_the_family_halves_the_regret_of_a_plan_that_thinks_of_spread_signals_alone() -> None:
    spread, along = facts(STEEP).problems()
    family = Family.parse("free")
    best = [optimise_schedule(problem, family) for problem in (spread, along)]
    one = best[0].schedule
    both = optimise_worst_regret([spread, along], family, best).schedule
    risks = predict_final_risks([spread, along], [one, both])
    regrets = risks - np.array([found.excess_risk for found in best])[:, None]
    assert regrets[:, 1].max() < 0.6 * regrets[:, 0].max()
