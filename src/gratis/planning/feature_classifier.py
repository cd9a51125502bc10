"""Plan a private softmax model on fixed features of norm 1 from n, p and the budget, and its rules of class counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu, split_mu
from gratis.planning.class_flow import mean_curvature
from gratis.records.budget import Budget
from gratis.records.checks import check_count
from gratis.records.events import Composition, Event
from gratis.records.neighbouring import Neighbouring
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import Descent, FeatureSettings
from gratis.stages.calibration import calibration_event
from gratis.stages.class_prior import class_counts_event
from gratis.stages.feature_descent import feature_descent_event
from gratis.stages.feature_mean import feature_mean_event

__all__ = ["FeatureFlow", "feature_flow", "longest_flow", "plan_feature_classifier"]

# Shares of μ²: class counts, where the model starts, and the calibration, where it ends.
_COUNTS, _CALIBRATION = 0.02, 0.05
# Share of what is left of μ, not of μ², for the mean.
MEAN_SHARE = 0.15
# The mean is left out where it would err by more than this part of a row's norm: then it costs more than it brings
# (three classes of Gaussian rows, ReLU, p = 500 … 30,000: accuracies cross between .3 and .6).
LARGEST_MEAN_ERROR = 0.5
# Chosen by hand on validation rows, inside the training part of split 9000, of nassCDS, spambase, optdigits, pendigits,
# adult and letter and on MNIST training images with the nμ of ε = 1 (docs/results/classifiers.md, "Random features").
_CLIP, _LARGEST_CLIP = 0.0324, 1.42  # ‖p − e_y‖ is at most √2
_NOISE, _SCARCE_NOISE, _MOST_NOISE = 0.16, 0.4, 10.0
_FINE = 1.5e-4  # noise u of a score below which ever more of it pays: the limit is the model without privacy
_LONGEST = 200_000.0
_STEP = 8.0
_STEPS = (64, 256)


@dataclass(frozen=True, slots=True)
class FeatureFlow:
    """Clip norm C of a gradient, flow time Σ η_t, largest step η, and noise in a score without curvature."""

    clip_norm: float
    time: float
    largest_step: float
    noise: float


def feature_flow(
    n_records: int, prior: NDArray[np.float64], *, mu: float, neighbouring: Neighbouring, clip_norm: float | None = None
) -> FeatureFlow:
    """Choose clip norm, flow time and largest step from the noise level and the released shares of the classes.

    A unit of time at clip norm C adds noise C·u to a score, u = κ/(nμ). The flatter the loss where the model starts
    (curvature h, the mean of π(1 − π)), the further it pays to go: until noise of .16/h in a direction without
    curvature, or .4·(h/u)^½ where records of rare classes are few beside it. C = .032·K^{−¾}·u^{−½} widens as noise
    falls and bounds nothing when there is hardly any. Below u = 1.5e−4 the noise allowed grows again, so that in the
    limit the flow arrives where it would without privacy. Steps are 8/c, c the largest eigenvalue of diag(π) − ππᵀ, the
    softmax's curvature at the prior, which is on average smaller for any calibrated prediction that knows more; rows
    of norm 1 have .1 to .4 of their square along one direction.

    >>> flow = feature_flow(4000, np.array([0.5, 0.5]), mu=0.25, neighbouring=Neighbouring.REPLACE_ONE)
    >>> round(flow.clip_norm, 2), round(flow.time), flow.largest_step, round(flow.noise, 2)
    (0.43, 743, 16.0, 0.64)
    """
    unit = neighbouring.sensitivity_factor / (n_records * mu)
    clip = clip_norm or min(_CLIP * len(prior) ** -0.75 / math.sqrt(unit), _LARGEST_CLIP)
    curvature = mean_curvature(prior)
    noise = min(_NOISE / curvature * max(1.0, _FINE / unit), _SCARCE_NOISE * math.sqrt(curvature / unit), _MOST_NOISE)
    time = min(noise / (clip * unit), _LONGEST)
    steepest = float(np.linalg.eigvalsh(np.diag(prior) - np.outer(prior, prior))[-1])
    return FeatureFlow(clip, time, _STEP / steepest, time * clip * unit)


def longest_flow(n_records: int, *, mu: float, neighbouring: Neighbouring, clip_norm: float) -> float:
    """Return the longest time that any shares of the classes ask for at a clip norm: a public fact."""
    return min(_MOST_NOISE * n_records * mu / (neighbouring.sensitivity_factor * clip_norm), _LONGEST)


def plan_feature_classifier(
    n_records: int,
    n_features: int,
    n_classes: int,
    budget: Budget,
    *,
    centre: bool = True,
    descent: Descent | None = None,
) -> Plan:
    """Fix every release: a mean of the features, class counts, T steps and a calibration.

    The total move A = Σ_t η_tC of θ carries noise κA/(nμ) in every coordinate, hence in a score of a row of norm 1,
    whatever T and C are; `feature_flow` says how much of it to allow, here for even classes and after their counts are
    released for those. `centre` spends .15μ on a private mean of the features, after which rows are scaled to norm 1
    again: that leaves 98.9 % of μ, and errs by √p·κ/(.15nμ) (.06 for p = 3969, n = 50,000, ε = 1) of a row's norm.
    Where that is more than a half, nothing is spent on a mean (`mean_mu` is 0).

    With a learning rate in `descent` it is Algorithm 1 of S0 from 0, plain steps of that rate: no counts, no momentum,
    no calibration.

    >>> plan = plan_feature_classifier(50_000, 3969, 10, Budget(epsilon=1.0, delta=1 / 50_000))
    >>> round(plan.settings.clip_norm, 2), plan.settings.steps, [leaf.label for leaf in plan.event.leaves()][:2]
    (0.47, 100, ['mean of the features', 'class counts'])
    """
    n, p = check_count("n_records", n_records), check_count("n_features", n_features)
    k, descent = check_count("n_classes", n_classes, minimum=2), descent or Descent()
    written, relation = descent.learning_rate is not None, budget.neighbouring
    mu, kappa = calibrate_mu(budget), relation.sensitivity_factor
    counts_mu, calibration_mu, mu = (
        (0.0, 0.0, mu) if written else split_mu(mu, [_COUNTS, _CALIBRATION, 1 - _COUNTS - _CALIBRATION])
    )
    mean_error = math.sqrt(p) * kappa / (MEAN_SHARE * n * mu)
    pays = mean_error <= LARGEST_MEAN_ERROR
    mean_mu = MEAN_SHARE * mu if centre and pays else 0.0
    # A hair less, so that the two parts compose to at most μ.
    descent_mu = math.sqrt(mu**2 - mean_mu**2) * (1 - 1e-12)
    flow = feature_flow(n, np.full(k, 1 / k), mu=descent_mu, neighbouring=relation, clip_norm=descent.clip_norm)
    # With momentum T steps of η come as far as ηT²/8, and what they have to swing with is forgotten four times.
    steps = descent.steps or int(min(max(math.sqrt(32 * flow.time / flow.largest_step), _STEPS[0]), _STEPS[1]))
    events: list[Event] = []
    if mean_mu:
        events.append(feature_mean_event(n, p, 1.0, mu=mean_mu, neighbouring=relation))
    if not written:
        events.append(class_counts_event(mu=counts_mu, neighbouring=relation))
    events.append(feature_descent_event(n, p if written else p + 1, k, steps, mu=descent_mu, neighbouring=relation))
    if not written:
        events.append(calibration_event(n, k, mu=calibration_mu, neighbouring=relation))
    rate = flow.time / steps if descent.learning_rate is None else descent.learning_rate
    noise = (
        flow.noise
        if not written
        else float(np.sum(np.broadcast_to(rate, steps))) * flow.clip_norm * kappa / (n * descent_mu)
    )
    means = (
        ("A private mean of the features takes .15μ: it removes what all records share.",) if mean_mu
        else (f"No private mean: it would err by {mean_error:.2g} of a row's norm.",) if centre else ()
    )  # fmt: skip
    return Plan(
        algorithm="full-batch-descent-on-features",
        schedule="constant" if written else "Nesterov, mean of the last half",
        settings=FeatureSettings(
            n_features=p, row_norm=1.0, clip_norm=flow.clip_norm, steps=steps, learning_rate=rate,
            descent_mu=descent_mu, mean_mu=mean_mu, counts_mu=counts_mu or None, calibration_mu=calibration_mu or None,
            engine=descent.engine, average=descent.average,
        ),
        budget=budget,
        event=events[0] if len(events) == 1 else Composition(tuple(events)),
        prediction=Prediction(
            quantity="score_noise_std", value=noise, low=noise, high=noise,
            source="κ·A·‖φ‖/(nμ), exact for rows of norm 1, constant rates and the last iterate",
            assumptions=(
                "accuracy depends on how well the fixed features separate the classes: not predicted",
                *(() if written else ("for even classes; released counts of uneven ones allow more",)),
            ),
        ),
        reasons=(
            *(
                (f"Given: {', '.join(descent.given)}. Algorithm 1 of S0 on {p} features, from 0.",)
                if written
                else (
                    f"Noise in a score is {noise:.2g} when the flow has taken the time {flow.time:.4g}.",
                    f"C = {flow.clip_norm:.2g} and T = {steps} follow from the noise level; the time is that for "
                    "even classes, and follow from the released counts of others.",
                )
            ),
            *means,
        ),
    )  # fmt: skip
