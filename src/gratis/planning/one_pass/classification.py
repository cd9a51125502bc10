"""One-pass private logistic regression, predicted without data: the deterministic equivalent of a generalised linear
model, its risk curve, and the best schedules (docs/theory/one-pass-classification.md).

Along every eigenvector v_i of Σ the iterate is a share of the truth and noise, ⟨v_i, θ⟩ = w_i⟨v_i, θ*⟩ + √(r_i/d)·g:

    dw_i/dt = η̄λ_i(b − a·w_i)
    dr_i/dt = −2η̄λ_i·a·r_i + γλ_i·η̄²·v + κ²γ²·(−d(η̃²c²)/dt)/ρ²

with a, b and v of `logistic_moments` at Q = (1/d)Σλ_i(s_iw_i² + r_i), M = (1/d)Σλ_is_iw_i, s_i = d⟨v_i, θ*⟩².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.box_descent import descend_in_box
from gratis.planning.one_pass.deterministic_equivalent import MOST_HALVINGS, Refinement, atom_tables, enough_atoms
from gratis.planning.one_pass.logistic_moments import logistic_moments, logistic_risk
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.schedule_families import FreeFamily, ScheduleFamily
from gratis.planning.one_pass.schedule_optimisation import Family, FamilyKind
from gratis.planning.one_pass.schedules import Polynomial, Schedule
from gratis.planning.one_pass.time_grid import graded_edges, halved
from gratis.records.checks import check_positive
from gratis.records.errors import GratisError

__all__ = [
    "ClassificationProblem",
    "ClassificationTrajectory",
    "OptimisedClassification",
    "optimise_classification",
    "predict_classification",
    "run_glm",
]

Array = NDArray[np.float64]

_SMOOTHNESS = 0.25  # of the logistic loss in the score
_FIRST_STEPS = 12
# At the cap itself rows of more than average length take shorter steps, which the limit of large d does not see (at
# d = 400 and β = .3 the excess loss was 4 % off); where clips are small only their product with the rate counts.
_OF_CAP = 0.5
_SCAN_STEPS, _DESCENT_STEPS, _ATOMS = 10, 20, 10
_DIFFERENCE = 1e-4  # of a logarithm, for gradients
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationProblem(OnePassProblem):
    """Public facts of one-pass logistic regression with two balanced classes: P(y = 1|x) = σ(xᵀθ*), x ~ N(0, Σ).

    `signal_variance` S = ‖Σ^{1/2}θ*‖² is the variance of the true log odds (1: the best classifier has an error rate of
    .325; 4: .222; 16: .129). Labels bring their own noise, so `label_noise_variance` stays 0.

    >>> problem = ClassificationProblem(gamma=0.1, rho=0.5, signal_variance=4.0)
    >>> round(problem.least_loss, 4), round(problem.least_error_rate, 4), problem.rate_cap
    (0.462, 0.222, 80.0)
    """

    label_noise_variance: float = 0.0

    def __post_init__(self) -> None:
        # Not super(): a class with slots is made anew, and the old one is what super() would look for.
        OnePassProblem.__post_init__(self)
        if self.label_noise_variance:
            raise GratisError("two classes have no label noise of their own; leave label_noise_variance at 0")

    @property
    def least_loss(self) -> float:
        """E log(1 + e^{−yu*}): the log loss of θ* itself."""
        return float(logistic_risk(*[self.signal_variance] * 3)[0])

    @property
    def least_error_rate(self) -> float:
        """P(yu* < 0): no classifier errs less often."""
        return float(logistic_risk(*[self.signal_variance] * 3)[1])

    @property
    def initial_excess_loss(self) -> float:
        """Excess of predicting ½: log 2 − the least loss."""
        return math.log(2.0) - self.least_loss

    @property
    def rate_cap(self) -> float:
        """8/γ: beyond the cap 2/(L‖x‖²) of a step, L = ¼, a higher rate only adds noise."""
        return 2.0 / (_SMOOTHNESS * self.gamma)


@dataclass(frozen=True, slots=True)
class ClassificationTrajectory:
    """Predicted excess log loss and error rate along the pass; the final ones include the last noise at t = 1.

    relative_error is the solver's own estimate for final_excess_loss.
    """

    times: Array
    excess_loss: Array
    error_rate: Array
    final_excess_loss: float
    final_error_rate: float
    relative_error: float


def _phi(z: Array) -> Array:
    """(1 − e^{−z})/z."""
    return np.where(z > 1e-5, -np.expm1(-z) / np.maximum(z, 1e-300), 1.0 - 0.5 * z)


def run_glm(
    moments: Callable[[float, float, float, float], tuple[float, float, float]],
    *,
    lengths: Array,
    rates: Array,
    clips: Array,
    noise: Array,
    gamma: float,
    signal_variance: float,
    atoms: Array,
    lumps: bool = False,
) -> Array:
    """Return (Q, M) at the edges for any generalised linear model: exponential midpoint steps.

    Parameters
    ----------
    moments:
        (Q, M, S, c) → (a, b, v): all that the equation knows of the model (docs/theory/one-pass-classification.md,
        statement 3).
    lengths, rates, clips, noise:
        Of every step: its length, η̄ and c in its middle, and the drop of κ²γ²a²/ρ² over it.
    gamma, signal_variance:
        d/n and S.
    atoms:
        (5, m), as `SpectralMeasure.rows` makes it of S/2.
    lumps:
        Whether noise comes at the end of a step instead of being spread over it.
    """
    values, readout, signal, variance, source = atoms[0], atoms[1], 2.0 * atoms[2], atoms[3], atoms[4]
    path = np.zeros((2, lengths.size + 1))
    w, r, Q, M = np.zeros(values.size), np.zeros(values.size), 0.0, 0.0
    for k in range(lengths.size):
        for part in (0.5, 1.0):
            a, b, v = moments(Q, M, signal_variance, clips[k])
            way = rates[k] * part * lengths[k] * values
            z = a * way
            kick = 0.0 if lumps else part * noise[k]
            new_w = w * np.exp(-z) + b * way * _phi(z)
            added = gamma * rates[k] ** 2 * v * part * lengths[k] * variance + kick * source
            new_r = r * np.exp(-2.0 * z) + added * _phi(2.0 * z)
            Q, M = float(readout @ (signal * new_w**2 + new_r)), float(readout @ (signal * new_w))
        w, r = new_w, new_r
        if lumps:
            r = r + noise[k] * source
            Q += noise[k] * float(readout @ source)
        path[:, k + 1] = Q, M
    return path


def _solve(
    problem: ClassificationProblem, table: Array, edges: Array, rates: Array, clips: Array, *, lumps: bool
) -> tuple[Array, float]:
    """Return (Q, M) at the edges and Q after the last noise; rates and clips are at `halved(edges)`."""
    products = (rates[::2] * clips[::2]) ** 2
    drops = products[:-1] - products[1:]
    if np.any(drops < -1e-9 * products[0]):
        raise GratisError("a(t), rate times clip, must not increase: lower the schedule's later values")
    scale = 2.0 * problem.noise_scale
    path = run_glm(
        logistic_moments,
        lengths=np.diff(edges),
        rates=np.minimum(rates[1::2], problem.rate_cap),
        clips=clips[1::2],
        noise=np.maximum(drops, 0.0) * scale,
        gamma=problem.gamma,
        signal_variance=problem.signal_variance,
        atoms=table,
        lumps=lumps,
    )
    return path, float(path[0, -1] + products[-1] * scale)


def predict_classification(
    problem: ClassificationProblem, schedule: Schedule, *, tolerance: float = _TOLERANCE, atoms: int | None = None
) -> ClassificationTrajectory:
    """Predict the excess log loss and the error rate along one private pass of logistic regression.

    Derived, not proved, for n, d → ∞ and Gaussian rows with tr Σ²/d² → 0, and compared with runs: a Prediction, never a
    guarantee.

    Parameters
    ----------
    problem:
        γ, ρ, variance of the log odds, spectrum and relation.
    schedule:
        Rate and clip over the pass; a(t) must not increase. A clip level of 1 clips nothing.
    tolerance:
        Relative accuracy of the final excess loss; steps are halved until the estimated error is below it.
    atoms:
        Size of the quantised spectrum; by default as many as the tolerance asks for.

    References: docs/theory/one-pass-classification.md, statement 2.

    >>> problem = ClassificationProblem(gamma=0.1, rho=1.0, signal_variance=4.0)
    >>> found = predict_classification(problem, Polynomial(0.0, 10.0, 0.3))
    >>> round(found.final_excess_loss, 4), round(found.final_error_rate, 4)
    (0.0868, 0.2808)
    """
    check_positive("tolerance", tolerance)
    S = problem.signal_variance
    if S == 0:
        raise GratisError("a signal variance of 0 leaves nothing to predict; give the variance of the log odds")
    table = atom_tables([problem], enough_atoms(problem, tolerance) if atoms is None else atoms)[0]
    edges = times = graded_edges(_FIRST_STEPS, problem.gamma, schedule.breakpoints)
    refinement, least = Refinement(), problem.least_loss
    for halving in range(MOST_HALVINGS):
        points = halved(edges)
        path, end = _solve(problem, table, edges, schedule.rate(points), schedule.clip(points),
                           lumps=schedule.is_stepwise)  # fmt: skip
        shown = path[:, :: 1 << halving]
        risks = np.array([*(logistic_risk(Q, M, S) for Q, M in shown.T), logistic_risk(end, path[1, -1], S)])
        best, errors = refinement.add(np.concatenate([risks[:, 0] - least, risks[:, 1]]))
        if errors[len(risks) - 1] <= tolerance:
            break
        edges = points
    losses, rates = best[: len(risks)], best[len(risks) :]
    return ClassificationTrajectory(
        times, losses[:-1], rates[:-1], float(losses[-1]), float(rates[-1]), float(errors[len(risks) - 1])
    )


@dataclass(frozen=True, slots=True)
class OptimisedClassification:
    """The best schedule found in a family, and its predicted final excess log loss (at most that of doing nothing)."""

    family: Family
    schedule: Schedule
    excess_loss: float
    error_rate: float


class _Objective:
    """log of the final excess loss as a function of a family's parameters, on one grid, with slopes by differences."""

    def __init__(self, problem: ClassificationProblem, family: Family, steps: int) -> None:
        self.problem = problem
        self.model: ScheduleFamily
        self.model, self.edges = family.model(problem, steps)
        low, high = np.array(self.bounds()).T
        self._low, self._high = low, high
        self._table, self._least = atom_tables([problem], _ATOMS)[0], problem.least_loss

    def bounds(self) -> list[tuple[float, float]]:
        """Return the family's box: rates to half of the cap, no clip level beyond 1."""
        rate, clip, *others = self.model.bounds(_OF_CAP * self.problem.rate_cap)
        return [rate, (clip[0], 0.0), *others]

    def value(self, parameters: Array) -> float:
        rate, clip, _, _ = self.model.path(parameters)
        # The family's points are quarters of the steps; halves are enough here.
        path, end = _solve(self.problem, self._table, self.edges, np.exp(rate[::2]), np.exp(clip[::2]), lumps=False)
        loss = logistic_risk(end, path[1, -1], self.problem.signal_variance)[0]
        return math.log(max(loss - self._least, 1e-300))

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        value = self.value(parameters)
        slopes = np.empty(parameters.size)
        for i in range(parameters.size):
            behind, ahead = parameters.copy(), parameters.copy()
            behind[i] = max(parameters[i] - _DIFFERENCE, self._low[i])
            ahead[i] = min(parameters[i] + _DIFFERENCE, self._high[i])
            slopes[i] = (self.value(ahead) - self.value(behind)) / (ahead[i] - behind[i])
        return value, slopes


def _starts(problem: ClassificationProblem, family: Family) -> list[Array]:
    """Return the best points of a coarse grid over (η₀, c[, s]): one for each s, or two that lie apart."""
    objective = _Objective(problem, family, _SCAN_STEPS)
    axes = [math.log(_OF_CAP * problem.rate_cap) - np.linspace(0.0, 8.0, 9), np.log([0.01, 0.03, 0.1, 0.3, 0.9])]
    if family.kind is FamilyKind.HARMONIC:
        axes.append(np.log([min(10 * problem.gamma, 0.3), 1.0, 100.0]))
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    ordered = points[np.argsort([objective.value(point) for point in points], kind="stable")]
    if family.kind is FamilyKind.HARMONIC:
        return [ordered[ordered[:, 2] == offset][0] for offset in axes[2]]
    # Where nearly all gradients are clipped only the product of rate and clip counts: another product, or another clip.
    apart = [point for point in ordered[1:40] if np.abs(point - ordered[0]).max() > 2.0]
    return [ordered[0], *apart[:1]]


def optimise_classification(
    problem: ClassificationProblem, families: Sequence[str] = ("poly:0", "poly:0.5", "poly:1", "harmonic", "free")
) -> dict[str, OptimisedClassification]:
    """Return the best schedule of every family asked for, by family; the free ones start from the best of the others.

    No clip level exceeds 1, from where on nothing is clipped and only noise grows, and no rate 4/γ, half of the cap. A
    family that cannot beat doing nothing gets the schedule that does nothing.

    References: docs/theory/one-pass-classification.md, statement 6.

    >>> problem = ClassificationProblem(gamma=0.1, rho=1.0, signal_variance=4.0)
    >>> found = optimise_classification(problem, ("poly:0",))["poly:0"]
    >>> found.excess_loss < 0.077, 0 < found.schedule.clip_level < 1
    (True, True)
    """
    wanted = [Family.parse(name) for name in families]
    still = OptimisedClassification(
        Family.parse("poly:0"), Polynomial(0.0, 0.0, 1.0), problem.initial_excess_loss, 0.5
    )  # fmt: skip
    found: dict[str, OptimisedClassification] = {}
    if any(family.kind is FamilyKind.FREE_CLIP for family in wanted):
        raise GratisError("a clip level that varies is not offered for classification; take free")
    for family in sorted(wanted, key=lambda one: one.kind is FamilyKind.FREE):
        objective = _Objective(problem, family, _DESCENT_STEPS)
        if isinstance(objective.model, FreeFamily):
            known = found or optimise_classification(problem, ("poly:0", "harmonic"))
            best = min(known.values(), key=lambda one: one.excess_loss)
            starts = [objective.model.start(best.schedule if best.excess_loss < still.excess_loss else _slow(problem))]
        else:
            best, starts = still, _starts(problem, family)
        ends = [
            descend_in_box(objective, start, objective.bounds(), tolerance=_TOLERANCE, most_steps=60)
            for start in starts
        ]
        point = min(ends, key=objective.value)
        schedule = objective.model.schedule(point)
        predicted = predict_classification(problem, schedule, tolerance=1e-5)
        found[family.label] = OptimisedClassification(
            family, schedule, predicted.final_excess_loss, predicted.final_error_rate
        )
        if best.excess_loss <= predicted.final_excess_loss:
            found[family.label] = OptimisedClassification(family, best.schedule, best.excess_loss, best.error_rate)
    return {family.label: found[family.label] for family in wanted}


def _slow(problem: ClassificationProblem) -> Polynomial:
    """A start for a free schedule where no simpler one helps."""
    return Polynomial(0.0, 1e-3 * problem.rate_cap, 0.1)
