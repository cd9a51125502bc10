"""The deterministic equivalent against the algorithm itself: planned events, run on Gaussian data that nobody owns.

`python tests/theorems/test_deterministic_equivalent.py` repeats it at d = 800 with 20 runs for every schedule.
"""

from __future__ import annotations

import numpy as np
import pytest

from gratis.planning.one_pass.prediction import OnePassProblem, predict_one_pass
from gratis.planning.one_pass.schedule_optimisation import optimise_all
from gratis.planning.one_pass.schedules import Schedule
from gratis.planning.one_pass.spectra import parse_spectrum
from gratis.planning.one_pass_event import one_pass_event
from gratis.records.neighbouring import Neighbouring
from gratis_papers.one_pass_runs import simulate_one_pass

RHO, NOISE = 0.5, 0.25


def compare(
    schedule: Schedule, spectrum_name: str, d: int, runs: int, gamma: float, seed: int
) -> tuple[float, float, float]:
    """Predicted final risk, simulated mean, standard error."""
    spectrum = parse_spectrum(spectrum_name)
    n = round(d / gamma)
    problem = OnePassProblem(gamma=d / n, rho=RHO, label_noise_variance=NOISE, spectrum=spectrum)
    event = one_pass_event(schedule, n_records=n, dimension=d, rho=RHO, neighbouring=Neighbouring.REPLACE_ONE)
    rng = np.random.default_rng(seed)
    eigenvalues = spectrum.eigenvalues(d)
    # E⟨v_i, θ*⟩² as the theory assumes, with random signs: only squares enter.
    target = np.sqrt(spectrum.signal_energies(d)) * rng.choice([-1.0, 1.0], d)
    target *= 1 / np.sqrt(eigenvalues @ target**2)
    risks = simulate_one_pass(
        [event],
        eigenvalues=eigenvalues,
        target=target,
        label_noise_variance=NOISE,
        repetitions=runs,
        record_steps=[n],
        rng=rng,
    )[0, :, 0]
    predicted = predict_one_pass(problem, schedule).final_excess_risk
    return predicted, float(risks.mean()), float(risks.std(ddof=1) / np.sqrt(runs))


def agrees(predicted: float, measured: float, error: float) -> bool:
    return abs(predicted - measured) <= max(3 * error, 0.03 * measured)


def planned(spectrum_name: str) -> dict[str, Schedule]:
    problem = OnePassProblem(gamma=0.1, rho=RHO, label_noise_variance=NOISE, spectrum=parse_spectrum(spectrum_name))
    return {name: one.schedule for name, one in optimise_all(problem).items()}


@pytest.mark.parametrize("spectrum_name", ["isotropic", "power:0.3"])
def test_planned_schedules_reach_what_was_predicted(spectrum_name: str) -> None:
    for name, schedule in planned(spectrum_name).items():
        assert agrees(*compare(schedule, spectrum_name, d=200, runs=20, gamma=0.1, seed=1)), name


def test_a_wrong_noise_would_be_noticed() -> None:
    """Negative control: the comparison has the power to see a prediction for twice the budget."""
    schedule = planned("isotropic")["harmonic"]
    predicted, measured, error = compare(schedule, "isotropic", d=200, runs=20, gamma=0.1, seed=2)
    problem = OnePassProblem(gamma=0.1, rho=2 * RHO, label_noise_variance=NOISE)
    assert agrees(predicted, measured, error)
    assert not agrees(predict_one_pass(problem, schedule).final_excess_risk, measured, error)


if __name__ == "__main__":
    for name_of_spectrum in ("isotropic", "power:0.3"):
        for label, one in planned(name_of_spectrum).items():
            result = compare(one, name_of_spectrum, d=800, runs=20, gamma=0.1, seed=3)
            print(name_of_spectrum, label, *(f"{v:.5f}" for v in result), agrees(*result))  # noqa: T201
