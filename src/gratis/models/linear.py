"""Linear regression under differential privacy, as one function of a session."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.second_moments import Preconditioner, whitening
from gratis.models.descent_noise import averaged_noise, curvature_left, noise_covariance
from gratis.models.fit_score import ReleasedScore, between, expected_r_squared, score_widths
from gratis.models.released_linear import ReleasedLinear
from gratis.private.bounds import ball, cube, outer
from gratis.private.reading import Reading, Standardised
from gratis.private.session import Session
from gratis.records.predictions import Prediction
from gratis.records.settings import Descent

__all__ = ["STEPS", "LinearFit", "descent_settings", "linear", "second_moments_pay"]

Array = NDArray[np.float64]

# "Without" is the mean change of R² (at least −1) over 16 tables, both relations, ε = .3, 1, 3, six splits from 91000
# on, which these numbers were chosen on.
# Shares of μ² with many records, and with few, when the target must be found first of all. Without: -.005 ± .002.
_SHARES = {"features": 0.20, "target": 0.11, "moments": 0.15, "descent": 0.47, "intercept": 0.04, "score": 0.03}
_FEW = {"features": 0.15, "target": 0.27, "moments": 0.10, "descent": 0.31, "intercept": 0.16, "score": 0.03}
STEPS = 64  # more follow the same path more finely, at the same noise
# N/d below which second moments of d columns drown in their noise (benchmarks/wide_tables.py), and columns whose
# eigenvectors take a minute and a gigabyte.
_CROWDED, _MOST_COLUMNS = 1 / 1.5, 4096
# Effective sample size at which not even the scales of columns are known and the fit is the mean, and from which on it
# is what was fitted; where the spectrum is not known, from twice as many. Without: -.006 ± .002.
_NOTHING, _EVERYTHING = 12.0, 36.0
# In units of the target's scale: bounds of the clip of a residual, its noise above which the narrower is better
# (2.5 throughout: -.003 ± .001), and what a clipped descent may err by where targets are skewed.
_NARROW, _WIDE, _BEARABLE, _SKEW = 1.25, 2.5, 0.07, 0.25
_UNEXPLAINED, _LEAST_LEFT = 0.5, 0.3  # share of the variance that sampling is reckoned with, and a score at least


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFit(ReleasedLinear):
    """What was released, the part of the coefficients' covariance that is privacy's noise, and the R² to expect."""

    noise_covariance: Array | None = None  # on standardised columns and the one; None where no basis was released
    expected: Prediction | None = None


def linear(s: Session, mu: float, reading: Reading, descent: Descent) -> LinearFit:
    """Least squares by full-batch gradient descent with clipped gradients, in a basis of released second moments.

    1. *Location and scale* of every column and of the target, from histograms on public grids; values beyond a released
       clipping bound are winsorised. (Public scales cost nothing.)
    2. *Second moments* M = (1/n)Σ zzᵀ of standardised rows z clipped to norm √D, and the basis (M + λ)^{-1/2} in which
       they are about the identity (ridge λ: half the spectral norm of the noise). Wide tables keep their own columns.
    3. *Descent*: θ ← θ − η·[(1/n)Σ clip_C((zᵀθ − t)z) + noise], T times from 0 with all rows (S0, Algorithm 1); the
       mean of the last half of the iterates.
    4. *Shrinkage* of the slopes by a James–Stein factor: what noise could have made is taken back. Post-processing.
    5. *Intercept correction*: the mean of clipped residuals; clipping leaves a descent nearer to the median.
    6. *Score* on the training rows, for the R² to expect on fresh ones (Mallows 1973 for the optimism).

    **Guarantee**: μ-GDP under the session's relation: all that is returned is made from the session's releases.
    """
    n, d = s.n_records, s.rows.n_features
    N = n * mu / s.relation.sensitivity_factor  # the effective sample size
    private, whitened = reading.standardise, second_moments_pay(d, N)
    paid = {"features": private, "target": private, "intercept": private, "moments": whitened, "descent": True}
    paid["score"] = private and not descent.given
    known = between(N, _NOTHING, _EVERYTHING)  # how far scales are
    part = s.split(mu, **{name: known * _SHARES[name] + (1 - known) * _FEW[name] for name in _SHARES if paid[name]})

    x, y, centre_error = reading.public_features(d), reading.public_target(), 0.0
    if private:
        x, _ = s.standardise(s.rows, part["features"], "features", impute=reading.impute)
        y, centre_error = s.standardise(s.rows.targets(), part["target"], "target", tail=0.002, headroom=2.0)
    rows = s.rows.mapped(Standardised(x, y), n_features=d + 1)  # (z, 1) and t

    basis = Preconditioner.identity(d + 1)
    if whitened:
        D = d + 1
        M, std = s.mean(lambda Z, t: Z / math.sqrt(D), outer(D), part["moments"], "second moments", rows=rows)
        basis = s.computed(lambda: whitening(D * M, D * std), planned=basis)
        rows = rows.mapped(lambda Z, t: (basis.transform(Z), t))

    steps = descent.steps or STEPS
    each = part["descent"].over(steps)
    clip, length = descent_settings(N, n * part["descent"].mu / s.relation.sensitivity_factor, basis, whitened=whitened)
    rate = length / steps
    if descent.clip_norm is not None:
        clip, rate = descent.clip_norm, float(descent.learning_rate)  # type: ignore[arg-type]
    path, noise = np.zeros((steps + 1, d + 1, 1)), 0.0
    for k in range(steps):
        gradient, noise = s.gradient(rows, partial(_residuals, path[k]), each, "descent", clip_norm=clip)
        path[k + 1] = path[k] - rate * gradient
    parameters = basis.restore(path[steps // 2 + 1 :].mean(axis=0)).copy()

    kept = 1.0
    if private and descent.clip_norm is None:  # else what the descent ends with is what was asked for
        kept = known if whitened else between(N, _NOTHING, 2 * _EVERYTHING)
        kept *= _james_stein(parameters, basis, rate, noise, steps, n) if whitened else 1.0
    parameters[:-1] *= kept

    correction = error = 0.0
    if private:
        width = min(max(_BEARABLE * n * part["intercept"].mu / s.relation.sensitivity_factor, _NARROW), _WIDE)
        at = basis.coordinates(parameters)
        mean, std = s.mean(
            lambda Z, t: -_residuals(at, Z, t) / width, ball(1), part["intercept"], "intercept correction", rows=rows
        )
        before = centre_error**2 + _SKEW**2
        correction = before / (before + (width * std) ** 2)  # James–Stein with a known variance
        parameters[-1] += correction * width * mean[0]
        error = correction * width * std

    expected = None
    if paid["score"]:
        at, reach = basis.coordinates(parameters), float(y.window[0] / y.scale[0])
        left = min(max(1 - _explained(parameters, basis), _LEAST_LEFT), 1.0)
        widths = score_widths(left, cube(2).sensitivity(n, s.relation) / part["score"].mu)

        def squares(Z: Array, t: Array) -> Array:
            return np.square(np.column_stack([t - np.clip((Z @ at)[:, 0], -reach, reach), t])) / widths

        means, std = s.mean(squares, cube(2), part["score"], "score of the fit", rows=rows)
        freedom = float(_reached(basis, rate, steps).sum())
        expected = expected_r_squared(ReleasedScore(means * widths, std * widths), y, n, N, freedom)

    def covariance() -> Array | None:
        felt = curvature_left(path[:, :, 0], basis.spectrum, learning_rate=rate, noise_std=noise) * basis.spectrum
        variances = averaged_noise(felt, learning_rate=rate, noise_std=noise, steps=steps)
        return noise_covariance(basis, variances, kept=kept, level_kept=correction, level_noise=error)

    return LinearFit(
        parameters=parameters, features=x, target=y, event=s.released.event, expected=expected,
        noise_covariance=s.computed(covariance, planned=None) if whitened else None,
    )  # fmt: skip


def second_moments_pay(columns: int, effective_size: float) -> bool:
    """Say, from public sizes, whether second moments of d columns are worth their share of the budget.

    Their noise has spectral norm ≍ d^{3/2}/N against a trace of d, so only directions with a share ≫ √d/N of the
    variance are seen; descent needs no basis to learn directions with a share ≫ 1/N.
    """
    return columns <= _MOST_COLUMNS and effective_size >= _CROWDED * columns


def descent_settings(
    effective_size: float, of_descent: float, basis: Preconditioner, *, whitened: bool
) -> tuple[float, float]:
    """Return the clip norm C = c√d_eff and the total step size Σηₜ, from N of the fit and of its descent.

    c = .23·√(N/√(d·d_eff)) between .3 and 5. Noise adds up to d_eff·c·Ση/N of a prediction: Ση is 20, in which a
    descent nearly ends, or less where that would be more than ½ (¼ without a basis). With c = .2·√(N/d) and
    at most 13: -.002 ± .001; 13 whatever the noise: -.006 ± .002.
    """
    dimension, columns = basis.effective_dimension, len(basis.spectrum)
    clip = min(max(0.23 * math.sqrt(effective_size / math.sqrt(columns * dimension)), 0.3), 5.0)
    return clip * math.sqrt(dimension), min(20.0, (0.5 if whitened else 0.25) * of_descent / (clip * dimension))


def _residuals(at: Array, Z: Array, t: Array) -> Array:
    return np.asarray(Z @ at - t[:, None])


def _explained(parameters: Array, basis: Preconditioner) -> float:
    """The variance of the predictions, in units of the target's."""
    slopes = np.append(parameters[:-1], [[0.0]], axis=0)
    return float(basis.spectrum @ np.square(basis.coordinates(slopes)[:, 0]))


def _reached(basis: Preconditioner, rate: float, steps: int) -> Array:
    """Which part of each slope a descent has reached: its last half on average is where it is after three quarters."""
    return np.asarray(-np.expm1(-0.75 * rate * steps * basis.spectrum))


def _james_stein(parameters: Array, basis: Preconditioner, rate: float, noise: float, steps: int, n: int) -> float:
    """The best multiple of a·slope + noise of known energy, at most 1: (1 − noise/energy)/a, a being what was reached.

    Not less than half a deviation of the noise's energy √(2/d_eff) would make of it. Without: -.004 ± .002.
    """
    spectrum, reached = basis.spectrum, _reached(basis, rate, steps)
    variances = averaged_noise(spectrum, learning_rate=rate, noise_std=noise, steps=steps)
    expected = float(spectrum @ variances) + _UNEXPLAINED * float(np.square(reached).sum()) / n
    ratio = _explained(parameters, basis) / max(expected, 1e-300)
    least = min(0.5 * math.sqrt(2 / basis.effective_dimension) / max(ratio, 1e-9), 1.0)
    whole = float(spectrum @ reached) / max(float(spectrum.sum()), 1e-300)
    return min(max(1 - 1 / max(ratio, 1e-9), least) / max(whole, 1e-9), 1.0)
