"""Plans of one-pass private logistic regression with two classes: what it will cost in log loss and accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.planning.assumptions import LinearFacts, aligned
from gratis.planning.one_pass.classification import (
    ClassificationProblem,
    ClassificationTrajectory,
    optimise_classification,
    predict_classification,
)
from gratis.planning.one_pass.schedules import Schedule
from gratis.planning.one_pass_event import one_pass_event
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration

__all__ = ["LOG_ODDS_FAMILY", "ClassificationPlan", "classification_problems", "plan_classification"]

# Variances of the log odds where nobody says: the best classifier is right in 67 %, 78 % and 87 % of cases.
LOG_ODDS_FAMILY = (1.0, 4.0, 16.0)
FAMILIES = ("poly:0", "poly:0.5", "poly:1", "harmonic")
_FEW = ("poly:0", "harmonic")  # where many problems are thought possible


@dataclass(frozen=True, slots=True)
class ClassificationPlan:
    """A schedule, the event of its pass, and what it is predicted to reach on every problem thought possible."""

    family: str
    schedule: Schedule
    event: OnePassIteration
    problems: tuple[ClassificationProblem, ...]
    curves: tuple[ClassificationTrajectory, ...]
    alternatives: tuple[dict[str, Any], ...]
    assumptions: tuple[str, ...]

    @property
    def excess_loss(self) -> float:
        """Mean predicted excess log loss."""
        return float(np.mean([curve.final_excess_loss for curve in self.curves]))

    @property
    def accuracy(self) -> float:
        """Mean predicted accuracy."""
        return 1 - float(np.mean([curve.final_error_rate for curve in self.curves]))

    @property
    def best_accuracy(self) -> float:
        """Mean accuracy of the true log odds: no classifier has more."""
        return 1 - float(np.mean([problem.least_error_rate for problem in self.problems]))

    @property
    def reasons(self) -> tuple[str, ...]:
        """The answer in words."""
        first = self.problems[0]
        start = float(np.mean([problem.initial_excess_loss for problem in self.problems]))
        words = [
            f"One pass, {self.family}: predicted accuracy {self.accuracy:.4g} (the true log odds: "
            f"{self.best_accuracy:.4g}), excess log loss {self.excess_loss:.4g} (predicting 1/2: {start:.4g}).",
            f"Rate {float(self.schedule.rate(0.0)):.4g} at the start and {float(self.schedule.rate(1.0)):.4g} at the "
            f"end, in units where the cap is {first.rate_cap:.4g}; clip level {float(self.schedule.clip(0.0)):.4g} "
            "(1 clips nothing).",
        ]
        if float(self.schedule.rate(0.0)) == 0:
            words.append("No pass is predicted to beat predicting 1/2 at this budget.")
        elif float(self.schedule.clip(0.0)) < 0.1:
            words.append(
                "So small a clip level makes nearly all gradients alike: what is released is close to a noisy mean of "
                "y·x (docs/theory/one-pass-classification.md, statement 5)."
            )
        return tuple(words)


def classification_problems(facts: LinearFacts) -> tuple[ClassificationProblem, ...]:
    """Return every problem thought possible: spectra and alignments of `LinearFacts`, log odds of the family."""
    if facts.label_noise_variance is not None:
        raise GratisError("two classes have no label noise variance; give the variance of the log odds alone")
    if facts.signal_variance == 0:
        raise GratisError("a signal variance of 0 leaves nothing to learn; give the variance of the log odds")
    signals = LOG_ODDS_FAMILY if facts.signal_variance is None else (facts.signal_variance,)
    places = dict.fromkeys((spectrum, alignment) for _, _, spectrum, alignment in facts.members())
    return tuple(
        ClassificationProblem(
            gamma=facts.gamma,
            rho=facts.mu,
            signal_variance=signal,
            spectrum=aligned(spectrum, alignment),
            neighbouring=facts.budget.neighbouring,
        )
        for spectrum, alignment in places
        for signal in signals
    )


def plan_classification(
    facts: LinearFacts, *, schedule: str = "best", given: Schedule | None = None
) -> ClassificationPlan:
    """Return the plan of one pass of logistic regression with the least predicted excess log loss.

    Parameters
    ----------
    facts:
        n, d, budget, and what is known of spectrum, alignment and, as `signal_variance`, the variance of the log odds.
        Where several problems are possible, every family takes the schedule, best for one of them, whose worst regret
        over all is least.
    schedule:
        "best", or a family: "poly:ALPHA", "harmonic" or "free".
    given:
        The user's own schedule: nothing is optimised.

    >>> from gratis.planning.one_pass.spectra import IsotropicSpectrum
    >>> from gratis.records.budget import Budget
    >>> facts = LinearFacts(n_records=2000, n_features=40, budget=Budget(mu=0.5), signal_variance=4.0,
    ...                     spectrum=IsotropicSpectrum())
    >>> plan = plan_classification(facts, schedule="poly:0")
    >>> round(plan.accuracy, 3), round(plan.best_accuracy, 3)
    (0.765, 0.778)
    """
    problems = classification_problems(facts)
    several = len(problems) > 1
    if given is not None:
        chosen, found = "given", {"given": given}
    elif several:
        wanted: tuple[str, ...] = _FEW if schedule == "best" else (schedule,)
        options = [optimise_classification(problem, wanted) for problem in problems]
        found = {name: _least_regret(problems, [option[name].schedule for option in options]) for name in options[0]}
    else:
        wanted = FAMILIES if schedule == "best" else tuple(dict.fromkeys((*FAMILIES, schedule)))
        found = {name: one.schedule for name, one in optimise_classification(problems[0], wanted).items()}
    losses = {name: _losses(problems, one) for name, one in found.items()}
    if given is None:
        allowed = found if schedule == "best" else [name for name in found if name == _label(schedule)]
        chosen = min(allowed, key=lambda name: float(losses[name].mean()))
    event = one_pass_event(
        found[chosen],
        n_records=facts.n_records,
        dimension=facts.n_features,
        rho=facts.mu,
        neighbouring=facts.budget.neighbouring,
    )
    rows = tuple(
        {"schedule": name, "excess_log_loss": float(one.mean()), "low": float(one.min()), "high": float(one.max())}
        for name, one in sorted(losses.items(), key=lambda item: float(item[1].mean()))
    )
    curves = tuple(predict_classification(problem, found[chosen], tolerance=1e-5) for problem in problems)
    return ClassificationPlan(chosen, found[chosen], event, problems, curves, rows, _assumptions(problems))


def _label(schedule: str) -> str:
    from gratis.planning.one_pass.schedule_optimisation import Family

    return Family.parse(schedule).label


def _losses(problems: tuple[ClassificationProblem, ...], schedule: Schedule) -> NDArray[np.float64]:
    return np.array([predict_classification(p, schedule, tolerance=1e-4).final_excess_loss for p in problems])


def _least_regret(problems: tuple[ClassificationProblem, ...], schedules: list[Schedule]) -> Schedule:
    """The schedule, best for one problem, that loses least against the best on the worst problem."""
    table = np.array([_losses(problems, schedule) for schedule in schedules])
    regrets = table - table.min(axis=0)
    return schedules[int(np.argmin(regrets.max(axis=1)))]


def _assumptions(problems: tuple[ClassificationProblem, ...]) -> tuple[str, ...]:
    signals = sorted({problem.signal_variance for problem in problems})
    spectra = list(dict.fromkeys(problem.spectrum.label for problem in problems))
    return (
        "Gaussian rows scaled to E|x|² = d, two classes of equal size, P(y = 1|x) = sigmoid(x·theta*), no intercept",
        f"variance of the log odds {' or '.join(f'{signal:g}' for signal in signals)}",
        f"spectrum {' or '.join(spectra)}",
        "n and d large: the equation is derived and compared with runs, not proved",
    )
