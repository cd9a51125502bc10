"""Plan a private softmax model on fixed features of bounded norm (images) from n, p and the budget alone."""

from __future__ import annotations

import math

from gratis.accounting import calibrate_mu
from gratis.planning.twins.random_features_twin import planned_descent, planned_mean
from gratis.records.budget import Budget
from gratis.records.checks import check_count, check_positive
from gratis.records.events import Composition, Event
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import FeatureSettings

__all__ = ["plan_feature_classifier"]

STEPS = 40
# Clip norm over row norm: a record's first gradient has norm about .95 of its row's, so most records are clipped at
# the start and those already classified are not.
CLIP = 0.2
# How far to go: until the privacy noise in a score has this standard deviation (score differences of about 4 decide).
SCORE_NOISE = 1.2
# Share of μ, not of μ², for the mean.
MEAN_SHARE = 0.15
# The mean is left out where it would err by more than this part of a row's norm: then it costs more than it brings
# (three classes of Gaussian rows, ReLU, p = 500 … 30,000: accuracies cross between .3 and .6).
LARGEST_MEAN_ERROR = 0.5


def plan_feature_classifier(
    n_records: int,
    n_features: int,
    n_classes: int,
    budget: Budget,
    *,
    row_norm: float = 1.0,
    centre: bool = True,
    steps: int | None = None,
) -> Plan:
    """Choose all settings by three public rules: C = .2·row norm, T = 40, and noise of 1.2 in a score.

    The total move A = Σ_t η_tC of θ carries noise κA/(nμ) in every coordinate, hence κA·‖φ‖/(nμ) in a score, whatever
    T and C are; setting that to 1.2 gives A. `centre` spends .15μ on a private mean of the features, after which rows
    are scaled to `row_norm` again: that leaves 98.9 % of μ, and errs by √p·κ/(.15nμ) (.06 for p = 3969, n = 50,000,
    ε = 1) of a row's norm. Where that is more than a half, nothing is spent on a mean (`mean_mu` is 0).

    Where the constants come from: .2 and 1.2 are what scikit-learn's digits choose without the mean, enlarged and with
    MNIST's nμ, among 25 settings (benchmarks/feature_constants.py; with the mean they lose .003 there). They had first
    been picked among 12 settings by MNIST test accuracy, so on MNIST they are not blind, only confirmed elsewhere.

    >>> plan = plan_feature_classifier(50_000, 3969, 10, Budget(epsilon=1.0, delta=1 / 50_000))
    >>> round(plan.settings.clip_norm, 3), plan.settings.steps, round(plan.settings.learning_rate)
    (0.2, 40, 1038)
    """
    n, p = check_count("n_records", n_records), check_count("n_features", n_features)
    k, row_norm = check_count("n_classes", n_classes, minimum=2), check_positive("row_norm", row_norm)
    steps = STEPS if steps is None else check_count("steps", steps)
    mu = calibrate_mu(budget)
    kappa = budget.neighbouring.sensitivity_factor
    mean_error = math.sqrt(p) * kappa / (MEAN_SHARE * n * mu)
    pays = mean_error <= LARGEST_MEAN_ERROR
    mean_mu = MEAN_SHARE * mu if centre and pays else 0.0
    # A hair less, so that the two parts compose to at most μ.
    descent_mu = math.sqrt(mu**2 - mean_mu**2) * (1 - 1e-12)
    clip_norm = CLIP * row_norm
    total_move = SCORE_NOISE * n * descent_mu / (kappa * row_norm)
    descent = planned_descent(n, p, k, steps, mu=descent_mu, neighbouring=budget.neighbouring)
    event: Event = descent
    if mean_mu:
        mean = planned_mean(n, p, row_norm, mu=mean_mu, neighbouring=budget.neighbouring)
        event = Composition((mean, descent))
    return Plan(
        algorithm="full-batch-descent-on-features",
        schedule="constant",
        settings=FeatureSettings(
            n_features=p,
            row_norm=row_norm,
            clip_norm=clip_norm,
            steps=steps,
            learning_rate=total_move / (clip_norm * steps),
            descent_mu=descent_mu,
            mean_mu=mean_mu,
        ),
        budget=budget,
        event=event,
        prediction=Prediction(
            quantity="score_noise_std",
            value=SCORE_NOISE,
            low=SCORE_NOISE,
            high=SCORE_NOISE,
            source="κ·A·‖φ‖/(nμ), exact for rows of the stated norm",
            assumptions=("accuracy depends on how well the fixed features separate the classes: not predicted",),
        ),
        reasons=(
            f"Noise in a score is {SCORE_NOISE} when θ moves by A = {total_move:.4g} in all.",
            f"C = {CLIP}·(row norm) and T = {steps}: insensitive choices, fixed in advance.",
            *(("A private mean of the features takes .15μ: it removes what all records share.",) if mean_mu else ()),
            *((f"No private mean: it would err by {mean_error:.2g} of a row's norm.",) if centre and not pays else ()),
        ),
    )
