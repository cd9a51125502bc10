"""What bounds a one-pass prediction from outside: the ends of the spectrum, and what no private algorithm can beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.optimize import brentq

from gratis.planning.assumptions import LinearFacts
from gratis.planning.one_pass.deterministic_equivalent import RiskTrajectory, solve_trajectory
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.rates import harmonic_rate, minimax_rate, polynomial_rate
from gratis.planning.one_pass.schedules import FreeForm, FreeFormWithClip, Harmonic, Polynomial, Schedule
from gratis.records.errors import GratisError
from gratis.records.plans import Plan
from gratis.records.record import Record
from gratis.records.settings import OnePassSettings

__all__ = [
    "OnePassLimits",
    "bayes_excess_risk",
    "one_pass_limits",
    "predict_lower_bound",
    "predict_upper_bound",
    "schedule_of",
]

_CURVES: tuple[type[Any], ...] = (Polynomial, Harmonic, FreeForm, FreeFormWithClip)
_TOLERANCE = 1e-4  # of the bounding equations: they are bounds, shown in four digits


_DIMENSION = 400  # atoms of the spectrum: the equation below averages over them
_LEAST_NOISE = 1e-9  # of the signal: the equation degenerates without label noise


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


def bayes_excess_risk(problem: OnePassProblem) -> float:
    """Return the least mean excess risk over θ* ~ N(0, diag) with the problem's energies, x Gaussian, as n, d → ∞.

    The posterior mean reaches it: ridge regression on √(energy)·x, whose risk is (Dobriban & Wager 2018, Theorem 2.1)

        R = ½ζ²(1/(λv) − 1),   1/v = λ + γ·mean τ/(1 + τv),   λ = γζ²/S,   τ_i = d·λ_i⟨v_i, θ*⟩²/S.

    By the second equation R = ½S·mean τ/(1 + τv), where nothing cancels, and u = λv solves 1 − u = (S/ζ²)u·mean.
    No algorithm, private or not, is better on average over such θ*, hence none on the worst of them.

    >>> problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25)
    >>> round(bayes_excess_risk(problem), 4), round(0.25 / 2 * 0.1 / (1 - 0.1), 4)  # beside least squares
    (0.0135, 0.0139)
    """
    signal = problem.signal_variance
    if signal == 0:
        return 0.0
    noise = max(problem.label_noise_variance, _LEAST_NOISE * signal)
    shares = problem.spectrum.eigenvalues(_DIMENSION) * problem.spectrum.signal_energies(_DIMENSION) * _DIMENSION
    penalty, ratio = problem.gamma * (noise / signal), signal / noise
    shares = shares[shares > 0]

    def left(u: float) -> float:
        """The part of the signal that is not learnt."""
        return float(np.sum(shares / (1 + shares * (u / penalty)))) / _DIMENSION

    # 1 at u = 0, not positive at 1; the root is at least 1/(1 + S/ζ²), above 1e-9.
    u = float(brentq(lambda u: 1 - u - ratio * u * left(u), 0.0, 1.0, xtol=1e-24, rtol=1e-12))
    return min(problem.initial_risk * left(u), problem.initial_risk)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePassLimits(Record):
    """`low` and `high` enclose the predicted risks of all members; rates are in units of the target's variance.

    `bayes_risk` is the least Bayes risk of the members: an excess risk, with its constant.

    `low`, `high` and the schedule's own rate are None for plans that are no pass.
    """

    bayes_risk: float
    minimax_rate: float
    schedule_rate: float | None
    low: float | None
    high: float | None
    words: tuple[str, ...]


def one_pass_limits(facts: LinearFacts, plan: Plan) -> OnePassLimits:
    """Put a plan of `plan_linear` beside what bounds it.

    The bounding equations need the ends of the spectrum alone (one-pass paper, (4.12)); the minimax rate is Theorem 3,
    the rate of the schedule Theorem 2, both up to constants.

    >>> from gratis.planning.linear import plan_linear
    >>> from gratis.planning.one_pass.spectra import IsotropicSpectrum
    >>> from gratis.records.budget import Budget
    >>> facts = LinearFacts(n_records=2000, n_features=200, budget=Budget(mu=0.5), signal_variance=1.0,
    ...                     label_noise_variance=0.25, spectrum=IsotropicSpectrum())
    >>> plan = plan_linear(facts, algorithm="one-pass", schedule="poly:0")
    >>> found = one_pass_limits(facts, plan)
    >>> round(found.low, 3), round(plan.prediction.value, 3), round(found.high, 3), round(found.minimax_rate, 3)
    (0.175, 0.175, 0.175, 0.14)
    """
    least = minimax_rate(facts.gamma, rho=facts.mu)
    bayes = min(bayes_excess_risk(problem) for problem in facts.problems())
    words = [
        f"No algorithm can do better than an excess risk of {bayes:.4g} on average over such problems, not even "
        "without privacy (Bayes risk).",
        f"No private algorithm does better on its worst problem than a constant times d/n + (d/(n·mu))² = {least:.4g} "
        "of the target's variance.",
    ]
    if not isinstance(plan.settings, OnePassSettings):
        return OnePassLimits(
            bayes_risk=bayes, minimax_rate=least, schedule_rate=None, low=None, high=None, words=tuple(words)
        )
    schedule = schedule_of(plan)
    rate = _rate(facts, schedule)
    if rate is not None:
        words[1] += f" The rate of this schedule is {rate:.4g}, constants left out as well."
    low, high = (
        [solve(problem, schedule, tolerance=_TOLERANCE).final_excess_risk for problem in facts.problems()]
        for solve in (predict_lower_bound, predict_upper_bound)
    )
    words.append(
        f"By the ends of the spectrum alone, the predicted risk lies between {min(low):.4g} and {max(high):.4g}."
    )
    return OnePassLimits(
        bayes_risk=bayes,
        minimax_rate=least,
        schedule_rate=rate,
        low=float(min(low)),
        high=float(max(high)),
        words=tuple(words),
    )


def _rate(facts: LinearFacts, schedule: Schedule) -> float | None:
    if isinstance(schedule, Polynomial) and facts.gamma < 1:
        return polynomial_rate(facts.gamma, alpha=schedule.alpha, rho=facts.mu, clip_level=schedule.clip_level)
    if isinstance(schedule, Harmonic):
        return harmonic_rate(facts.gamma, rho=facts.mu, clip_level=schedule.clip_level)
    return None


def schedule_of(plan: Plan) -> Schedule:
    """Make the schedule of a one-pass plan again from the curve in its settings."""
    if not isinstance(plan.settings, OnePassSettings):
        raise GratisError("this plan is no pass and has no schedule; take --algorithm one-pass")
    curve: Mapping[str, object] = plan.settings.curve
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in curve.items() if name != "label"}
    for kind in _CURVES:
        if {field.name for field in fields(kind)} == set(values):
            made: Schedule = kind(**values)
            return made
    raise GratisError("this plan has a schedule of another kind")
