"""The one-pass candidates of a linear plan: every schedule family on every member of the assumed family."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.planning.assumptions import LinearFacts
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
from gratis.records.progress import tracked

__all__ = ["ONE_PASS_FAMILIES", "OnePassCandidate", "one_pass_candidates"]

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


def one_pass_candidates(
    facts: LinearFacts, *, mu: float | None = None, families: tuple[str, ...] = ONE_PASS_FAMILIES
) -> list[OnePassCandidate]:
    """The schedule of least worst regret in every family.

    With one member this is the family's optimum. With several, the candidates of a family are the members' own
    optima; the free families then continue from the best of them by descent on the worst regret.
    """
    problems = facts.problems(mu=mu)
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
