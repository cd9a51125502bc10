"""Scalar ODEs above and below the deterministic equivalent: what the ends of the spectrum alone decide."""

from __future__ import annotations

import numpy as np

from gratis.planning.one_pass.deterministic_equivalent import RiskTrajectory, solve_trajectory
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.schedules import Schedule

__all__ = ["predict_lower_bound", "predict_upper_bound"]


def _bound(
    problem: OnePassProblem, schedule: Schedule, descent: float, variance: float, tolerance: float
) -> RiskTrajectory:
    # One atom: decay, readout, initial risk, gradient variance, private noise.
    atom = np.array([[descent], [1.0], [problem.initial_risk], [variance], [1.0]])
    return solve_trajectory(problem, schedule, atom[None], tolerance)


def predict_upper_bound(problem: OnePassProblem, schedule: Schedule, *, tolerance: float = 1e-6) -> RiskTrajectory:
    """Solve dR/dt = −2λ_min η̄ μ_c R + γλ_max η̄² ν_c (R + ζ²/2) + private noise: never below the prediction.

    An upper bound on the deterministic equivalent, not on what a run may do.

    References: S2, (4.12); docs/theory/one-pass.md, statement 7.

    >>> from gratis.planning.one_pass.schedules import Polynomial
    >>> problem = OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25)
    >>> round(predict_upper_bound(problem, Polynomial(0.0, 3.0, 0.3)).final_excess_risk, 4)
    0.1786
    """
    measure = problem.spectrum.measure()
    return _bound(problem, schedule, measure.smallest, measure.largest, tolerance)


def predict_lower_bound(problem: OnePassProblem, schedule: Schedule, *, tolerance: float = 1e-6) -> RiskTrajectory:
    """Solve dR/dt = −2λ_max η̄ μ_c R + γη̄² ν_c (R + ζ²/2) + private noise: never above the prediction.

    References: S2, (4.12); docs/theory/one-pass.md, statement 7.

    >>> from gratis.planning.one_pass.schedules import Polynomial
    >>> problem = OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25)
    >>> round(predict_lower_bound(problem, Polynomial(0.0, 3.0, 0.3)).final_excess_risk, 4)
    0.1786
    """
    return _bound(problem, schedule, problem.spectrum.measure().largest, 1.0, tolerance)
