"""One-pass private linear regression, predicted without data: problem, schedule → excess risk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.deterministic_equivalent import (
    MOST_HALVINGS,
    Refinement,
    RiskTrajectory,
    ScheduleBundle,
    atom_tables,
    enough_atoms,
    first_steps,
    solve_once,
    solve_trajectory,
)
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.schedules import Schedule
from gratis.planning.one_pass.time_grid import graded_edges, halved
from gratis.records.checks import check_positive

__all__ = ["OnePassProblem", "RiskTrajectory", "predict_final_risks", "predict_one_pass"]

Array = NDArray[np.float64]


def predict_one_pass(
    problem: OnePassProblem, schedule: Schedule, *, tolerance: float = 1e-6, atoms: int | None = None
) -> RiskTrajectory:
    """Predict the excess risk along one private pass (deterministic equivalent).

        dD_i/dt = −2λ_i η̄ μ_c D_i + γλ_i η̄² ν_c (R + ζ²/2) + (κ²/2)γ²·(−d(η̃²c²)/dt)/ρ²,   R = (1/d) Σ λ_i D_i,

    η̄ = min(η̃, 2/γ), and the last noise (κ²/2)γ²a(1)²/ρ² at t = 1. Exact as d → ∞ for Gaussian rows with
    tr Σ²/d² → 0; a Prediction, never a guarantee.

    Parameters
    ----------
    problem:
        γ, ρ, variances, spectrum and relation.
    schedule:
        Rate and clip over the pass; a(t) must not increase.
    tolerance:
        Relative accuracy of the final risk; steps are halved until the estimated error is below it.
    atoms:
        Size of the quantised spectrum; by default as many as the tolerance asks for.

    References: S2, Theorem 1 and Proposition 4.4; docs/theory/one-pass.md, statement 5.

    >>> from gratis.planning.one_pass.schedules import Polynomial
    >>> problem = OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25)
    >>> round(predict_one_pass(problem, Polynomial(0.0, 3.0, 0.3)).final_excess_risk, 5)
    0.1786
    """
    check_positive("tolerance", tolerance)
    atoms = enough_atoms(problem, tolerance) if atoms is None else atoms
    return solve_trajectory(problem, schedule, atom_tables([problem], atoms), tolerance)


def predict_final_risks(
    problems: Sequence[OnePassProblem],
    schedules: Sequence[Schedule],
    *,
    tolerance: float = 1e-5,
    atoms: int | None = None,
) -> Array:
    """Predict the final excess risk of every schedule on every problem, (problems, schedules), in one batch.

    The same equations as `predict_one_pass`; only the pairs that have not reached `tolerance` are refined.

    >>> from gratis.planning.one_pass.schedules import Polynomial
    >>> easy, hard = (OnePassProblem(gamma=0.1, rho=rho, label_noise_variance=0.25) for rho in (2.0, 0.5))
    >>> predict_final_risks([easy, hard], [Polynomial(0.0, 3.0, 0.3)]).round(4).tolist()
    [[0.1179], [0.1786]]
    """
    check_positive("tolerance", tolerance)
    result = np.empty((len(problems), len(schedules)))
    if not result.size:
        return result
    if atoms is None:
        atoms = max(enough_atoms(problem, tolerance) for problem in problems)
    tables, steps = atom_tables(problems, atoms), first_steps(tolerance)
    groups: dict[tuple[bool, bytes], list[int]] = {}
    for index, schedule in enumerate(schedules):
        groups.setdefault((schedule.is_stepwise, schedule.breakpoints.tobytes()), []).append(index)
    smallest, bundle = min(p.gamma for p in problems), ScheduleBundle(schedules)
    for (stepwise, _), members in groups.items():
        breakpoints = schedules[members[0]].breakpoints
        rows, columns = (
            v.ravel() for v in np.meshgrid(np.arange(len(problems), dtype=np.int64), members, indexing="ij")
        )
        edges, refinement = graded_edges(steps, smallest, breakpoints), Refinement()
        for _ in range(MOST_HALVINGS):
            points = halved(edges)
            _, final = solve_once(problems, tables, rows, edges, *bundle.sample(points, columns), stepwise)
            best, errors = refinement.add(final)
            result[rows, columns] = best
            unfinished = errors > tolerance
            if not unfinished.any():
                break
            rows, columns, edges = rows[unfinished], columns[unfinished], points
            refinement.keep(unfinished)
    return result
