"""Calibrating released scores privately: one factor for all of them, one shift a class (Platt 1999, many classes)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import unit_descent_event
from gratis.mechanisms.clipped_gradient import TINY_SQUARE, clipped_mean_sum
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.logistic import SoftmaxModel
from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import FullBatchDescent
from gratis.records.neighbouring import Neighbouring
from gratis.stages.flow import follow_flow

__all__ = ["calibrate_scores", "calibration_event"]

Array = NDArray[np.float64]

STEPS = 32
# ‖p − e_y‖ is at most √2, and along the scores a confident error weighs as much again.
_CLIP = 1.5
# How far the noise alone may push a shift: .3 changes odds by a third, and what needs more to be seen is left as it is.
_NOISE = 0.3
_LARGEST_STEP = 1.5  # the softmax's curvature is at most ½


def calibration_event(n_records: int, n_classes: int, *, mu: float, neighbouring: Neighbouring) -> FullBatchDescent:
    """Return the event of the steps of a calibration at `mu`-GDP, as `unit_descent_event`."""
    inflation = rounding_inflation(n_records, 2 * n_classes + 16, sensitivity=neighbouring.sensitivity_factor)
    return unit_descent_event(
        n_records, STEPS, mu=mu, neighbouring=neighbouring, rounding_inflation=inflation, label="calibration"
    )


def calibrate_scores(
    rows: Rows, prior: Array, *, scale: float, most: float, event: FullBatchDescent, noise: NoiseSource
) -> tuple[float, Array]:
    """Return (a, b) with P(class) ∝ prior·exp(a·scores + b), 0 < a ≤ `most`, found by a private descent from (1, 0).

    **Guarantee**: that of `event` (`calibration_event`), if scores are a function of one record each and of what was
    released before, and prior, scale and most were released or are public. A record's gradient in (a·scale, b) is
    (fᵀs/scale, f) with f = p − e_y; it is clipped to norm C, so the mean of such gradients over C has sensitivity κ/n.
    A record without a label, or with scores that are not finite, adds nothing.

    Parameters
    ----------
    rows : Rows
        (s, y): what the model adds to the log of the prior (n, K), and positions of the classes (n,).
    prior : (K,)
        Released shares of the classes.
    scale : float
        Typical size of a score, which makes the K+1 coordinates alike.
    most : float
        Largest factor: rows in hand flatter a fit, so they may say too little of how unsure to be.
    """
    classes = len(prior)
    model, offset = SoftmaxModel(classes), np.log(prior)
    aimed = rows.mapped(lambda scores, y: (scores / scale, model.targets(y)[:, 0]))
    std = event.noise_stds.values[0]

    def gradient(place: Array) -> Array:
        def clipped(units: Array, targets: Array, each: int = 1) -> Array:
            factors = model.mean(offset + place[0] * units + place[1:]) - targets
            found = np.column_stack([np.einsum("ik,ik->i", factors, units), factors])
            if each > 1:
                return clipped_mean_sum(found, np.ones((len(found), 1)), _CLIP, each)[:, 0]
            lengths = np.sqrt(np.einsum("ik,ik->i", found, found) + TINY_SQUARE) / _CLIP
            counted = lengths < np.inf
            weights = np.where(counted, 1 / (np.maximum(lengths, 1) * _CLIP), 0.0)
            return np.asarray(weights @ np.where(counted[:, None], found, 0.0))

        with np.errstate(all="ignore"):
            total = aimed.clipped_total(clipped)
        return _CLIP * noise.release(total / rows.n_rows, std)

    flat = _CLIP * std / math.sqrt(event.steps)  # what a unit of time adds: the noise of one release for all of μ
    begin = np.concatenate([[scale], np.zeros(classes)])
    reached = follow_flow(gradient, begin, time=_NOISE / flat, steps=event.steps, largest_step=_LARGEST_STEP)
    shift = reached[1:] - reached[1:].mean()
    return float(np.clip(reached[0] / scale, 0.05, most)), shift
