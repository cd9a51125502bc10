"""Plan a private linear regression from public facts: predict every algorithm and schedule, take the best, say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.significant import significant
from gratis.planning.assumptions import LinearFacts
from gratis.planning.full_batch import full_batch_candidate
from gratis.planning.one_pass.prediction import predict_final_risks
from gratis.planning.one_pass.schedule_optimisation import (
    Family,
    FamilyKind,
    OptimisedSchedule,
    optimise_all,
    optimise_schedule,
)
from gratis.planning.one_pass.schedule_regret import optimise_worst_regret
from gratis.planning.one_pass.schedules import Schedule
from gratis.planning.one_pass_event import one_pass_event
from gratis.records.errors import GratisError
from gratis.records.events import Event
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.progress import tracked
from gratis.records.record import JsonObject, plain
from gratis.records.settings import OnePassSettings, Settings

__all__ = [
    "ALGORITHMS",
    "ONE_PASS_FAMILIES",
    "OnePassCandidate",
    "one_pass_candidates",
    "plan_given_pass",
    "plan_linear",
]

ALGORITHMS = ("auto", "one-pass", "full-batch")
_HOPELESS = 0.01  # a plan that saves less than this share of the mean's risk is called what it is


ONE_PASS_FAMILIES = ("poly:0", "poly:0.5", "poly:1", "poly:2", "harmonic", "free", "free-clip")


@dataclass(frozen=True, slots=True)
class OnePassCandidate:
    """A schedule of one family and its predicted excess risk on every member."""

    family: str
    schedule: Schedule
    risks: NDArray[np.float64]

    @property
    def value(self) -> float:
        """Mean over the members (the only one, where nothing is assumed)."""
        return float(self.risks.mean())


def one_pass_candidates(facts: LinearFacts, *, families: tuple[str, ...] = ONE_PASS_FAMILIES) -> list[OnePassCandidate]:
    """The schedule of least worst regret in every family.

    With one member this is the family's optimum. With several, the candidates of a family are the members' own
    optima; the free families then continue from the best of them by descent on the worst regret.
    """
    problems = facts.problems()
    alphas = [float(name.removeprefix("poly:")) for name in families if name.startswith("poly:")]
    widest = max((Family.parse(name).kind for name in families), key=list(FamilyKind).index)
    optima: list[dict[str, OptimisedSchedule]] = []
    for problem in tracked(problems, "planning"):
        if len(families) == 1:
            only = Family.parse(families[0])
            optima.append({only.label: optimise_schedule(problem, only, quick=True)})
        else:  # wide families start from narrow ones
            optima.append(optimise_all(problem, alphas or (0.0, 1.0), top=widest))
    found = []
    for name in families:
        family = Family.parse(name)
        best = [optimum[family.label] for optimum in optima]
        if len(problems) == 1:
            found.append(OnePassCandidate(family.label, best[0].schedule, np.array([best[0].excess_risk])))
        elif name.startswith("free"):
            chosen = optimise_worst_regret(problems, family, best)
            found.append(OnePassCandidate(family.label, chosen.schedule, chosen.excess_risks))
        else:
            schedules = [one.schedule for one in best]
            risks = predict_final_risks(problems, schedules)
            spread = np.array([max(p.signal_variance + p.label_noise_variance, 1e-300) for p in problems])
            regrets = (risks - np.array([one.excess_risk for one in best])[:, None]) / spread[:, None]
            index = int(np.argmin(regrets.max(axis=0)))
            found.append(OnePassCandidate(family.label, schedules[index], risks[:, index]))
    return found


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to train: its predicted excess risks over the members, its settings and its event."""

    algorithm: str
    schedule: str
    risks: NDArray[np.float64]
    settings: Settings
    event: Event
    source: str

    @property
    def value(self) -> float:
        """Mean predicted excess risk."""
        return float(self.risks.mean())

    def row(self) -> JsonObject:
        """Return one row of the alternatives."""
        return {
            "algorithm": self.algorithm,
            "schedule": self.schedule,
            "predicted_excess_risk": self.value,
            "low": float(self.risks.min()),
            "high": float(self.risks.max()),
        }


def plan_linear(facts: LinearFacts, *, algorithm: str = "auto", schedule: str = "best", compare: bool = True) -> Plan:
    """Return the plan with the least predicted excess risk, with all alternatives and the reasons in words.

    `facts` holds n, d, the budget and what is known of signal, label noise and spectrum; `algorithm` is "auto",
    "one-pass" or "full-batch"; `schedule` is "best" or a one-pass family: "poly:ALPHA", "harmonic", "free" or
    "free-clip". Without `compare` the other families are not even looked at.

    >>> from gratis.records.budget import Budget
    >>> from gratis.planning.one_pass.spectra import IsotropicSpectrum
    >>> facts = LinearFacts(n_records=2000, n_features=200, budget=Budget(mu=0.5), signal_variance=1.0,
    ...                     label_noise_variance=0.25, spectrum=IsotropicSpectrum())
    >>> plan = plan_linear(facts, algorithm="one-pass", schedule="poly:0")
    >>> round(plan.prediction.value, 3)
    0.175
    """
    if algorithm not in ALGORITHMS:
        raise GratisError(f"unknown algorithm {algorithm!r}; expected one of {', '.join(ALGORITHMS)}")
    if schedule != "best":
        wanted = Family.parse(schedule).label
        if algorithm == "full-batch":
            raise GratisError("schedules belong to one-pass training; with full-batch leave the schedule at 'best'")
        others = ONE_PASS_FAMILIES if compare else ()
        families = (*others, *([wanted] if wanted not in others else []))
    else:
        wanted, families = None, ONE_PASS_FAMILIES
    candidates: list[Candidate] = []
    if algorithm != "full-batch":
        candidates += _one_pass_plans(facts, families)
    if algorithm != "one-pass" and wanted is None:
        candidates.append(Candidate(*full_batch_candidate(facts)))
    allowed = [c for c in candidates if wanted is None or c.schedule == wanted]
    if not allowed:
        raise GratisError(f"the schedule {wanted} cannot be run over {facts.n_records} rows in double precision")
    chosen = min(allowed, key=lambda candidate: candidate.value)
    return Plan(
        algorithm=chosen.algorithm,
        schedule=chosen.schedule,
        settings=chosen.settings,
        budget=facts.budget,
        event=chosen.event,
        prediction=_prediction(facts, chosen),
        reasons=_reasons(facts, chosen, candidates),
        alternatives=tuple(c.row() for c in sorted(candidates, key=lambda candidate: candidate.value)),
    )


def plan_given_pass(facts: LinearFacts, schedule: Schedule) -> Plan:
    """Return the plan of a pass whose rates and clip norms are the user's, with the least noise (S2, Algorithm 1)."""
    risks = predict_final_risks(facts.problems(), [schedule])[:, 0]
    chosen = _one_pass(facts, OnePassCandidate("given", schedule, risks))
    return Plan(
        algorithm=chosen.algorithm,
        schedule=chosen.schedule,
        settings=chosen.settings,
        budget=facts.budget,
        event=chosen.event,
        prediction=_prediction(facts, chosen),
        reasons=("Rates and clip norm are the user's; the noise is the least that they allow (S2, equation 4.2).",),
        alternatives=(),
    )


def _one_pass_plans(facts: LinearFacts, families: tuple[str, ...]) -> list[Candidate]:
    """Plans of all families that double precision can run; an error only if there is none."""
    found: list[Candidate] = []
    refusal: GratisError | None = None
    for one in one_pass_candidates(facts, families=families):
        try:
            found.append(_one_pass(facts, one))
        except GratisError as error:
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return found


def _one_pass(facts: LinearFacts, candidate: OnePassCandidate) -> Candidate:
    event = one_pass_event(
        candidate.schedule,
        n_records=facts.n_records,
        dimension=facts.n_features,
        rho=facts.mu,
        neighbouring=facts.budget.neighbouring,
    )
    settings = OnePassSettings(
        rho=facts.mu,
        initial_step_size=event.step_sizes.values[0],
        initial_clip_norm=event.clip_norms.values[0],
        noise_std_total=float(significant(np.sqrt(np.sum(event.noise_stds.array() ** 2)))),
        blocks=len(event.step_sizes.counts),
        curve=plain({"label": candidate.schedule.label, **asdict(candidate.schedule)}),  # type: ignore[call-overload]
    )
    return Candidate("one-pass", candidate.family, candidate.risks, settings, event, "deterministic equivalent")


def _prediction(facts: LinearFacts, chosen: Candidate) -> Prediction:
    signal, noise = zip(*[(s, z) for s, z, *_ in facts.members()], strict=True)
    total = np.array(signal) + np.array(noise)
    r_squared = 1 - (2 * chosen.risks + np.array(noise)) / np.where(total > 0, total, 1.0)
    return Prediction(
        quantity="excess_risk",
        value=chosen.value,
        low=float(chosen.risks.min()),
        high=float(chosen.risks.max()),
        source=chosen.source,
        assumptions=facts.describe(),
        details={
            "initial_excess_risk": float(np.mean(signal) / 2),
            "r_squared": float(r_squared.mean()),
            "r_squared_range": [float(r_squared.min()), float(r_squared.max())],
        },
    )


def _reasons(facts: LinearFacts, chosen: Candidate, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    initial = np.array([s / 2 for s, *_ in facts.members()])
    least = min(candidates, key=lambda candidate: candidate.value)
    # A schedule that the user named need not be the best of those that were looked at.
    words = "has the least" if least.value >= chosen.value else f"was asked for ({least.schedule} has less); its"
    found = [
        f"{facts.budget.describe()} allows mu = {facts.mu:.5g}; n = {facts.n_records}, d = {facts.n_features}, "
        f"gamma = d/n = {facts.gamma:.4g}.",
        f"{chosen.algorithm}, {chosen.schedule} {words} predicted excess risk: {chosen.value:.4g} "
        f"(predicting the mean: {initial.mean():.4g}).",
    ]
    others = [c for c in candidates if c.algorithm != chosen.algorithm]
    if others:
        best = min(others, key=lambda candidate: candidate.value)
        found.append(f"The best {best.algorithm} ({best.schedule}) would have {best.value:.4g}.")
    if len(chosen.risks) > 1:
        found.append(
            "Signal, spectrum or how they lie to each other are not known, so this is the setting of least worst "
            f"regret over {len(chosen.risks)} "
            f"possible problems; its risk ranges from {chosen.risks.min():.4g} to {chosen.risks.max():.4g}."
        )
    if np.all(chosen.risks >= (1 - _HOPELESS) * initial) and initial.max() > 0:
        found.append(
            "This budget cannot beat predicting the mean: more rows, a larger epsilon or fewer columns are needed."
        )
    return tuple(found)
