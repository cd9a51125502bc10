"""A first figure of what privacy costs random features, in closed form, for a picture that the plan then replaces."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from gratis.accounting import calibrate_mu
from gratis.models.random_features import Activation
from gratis.planning.bounds.early_stopping import EarlyStopping
from gratis.planning.twins.random_features_twin import (
    draw_sign_twin,
    feature_second_moment,
    shrunken,
)
from gratis.records.budget import Budget

__all__ = ["rough_feature_cost"]

_RECORDS, _TEST_RECORDS = 400, 1000
_TIMES = np.geomspace(0.01, 300.0, 40)
_CLIP = 1.0  # in units of the feature norm √(p·Eφ²): typical of what plans choose
_FACTOR = 3.0  # either way


def rough_feature_cost(
    n_records: int, n_inputs: int, n_features: int, budget: Budget, *, activation: Any = "tanh", seed: int = 0
) -> tuple[float, float, float]:
    """Loss to privacy (value, low, high) of early stopping with the noise of the budget, as if nothing were clipped.

    One twin of 400 rows and the gradient flow's closed form instead of simulated descents: .02 to .15 s instead of .3
    to 4. It leaves out the bias of clipping and so tends to be too low: of ten sizes (n = 1000 … 10⁶, d = 5 … 200, ε =
    .2 … 3) the plan's own figure was .7 to 2.4 times as large in nine, and the tenth was below .002. Twins of those
    sizes also differ among each other by as much. The range is a factor of 3 either way.

    >>> value, low, high = rough_feature_cost(5000, 10, 2000, Budget(epsilon=1.0, delta=1e-6))
    >>> 0 <= low <= value <= high < 1
    True
    """
    phi = Activation.parse(activation)
    power, mu = feature_second_moment(phi), calibrate_mu(budget)
    n, d, p, denser = shrunken(n_records, n_inputs, n_features, _RECORDS)
    closed, interpolant = _closed_form(n, d, p, phi, seed)
    flow = _TIMES * min(d, n) / (p * power)
    # √T·s = κ·ηT·C/(nμ).
    noise = budget.neighbouring.sensitivity_factor / (mu * denser) * flow * _CLIP * math.sqrt(p * power) / n
    stopped = float(closed.predict_flow(flow, total_noise_variances=0.0).total.min())
    private = float(closed.predict_flow(flow, total_noise_variances=noise**2).total.min())
    value = max(0.0, private - min(stopped, interpolant))
    return value, value / _FACTOR, value * _FACTOR


@lru_cache(maxsize=4)
def _closed_form(n: int, d: int, p: int, activation: Activation, seed: int) -> tuple[EarlyStopping, float]:
    """A twin's losses in closed form, the same for every budget, and the loss of its interpolant."""
    twin = draw_sign_twin(n, d, p, activation, rng=np.random.default_rng(seed), n_test=_TEST_RECORDS)
    return twin.closed_form, float(twin.interpolant_loss)
