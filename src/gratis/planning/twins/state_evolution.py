"""A twin without rows: what clipped, noisy full-batch descent does to its error, followed by a few numbers a direction.

Rows are x = r·(√s₁g₁, …, √s_D g_D) with log-normal r and normal g, labels xᵀθ* + ξ with skewed ξ. The error δ = θ − θ*
enters a record's gradient through its residual e = xᵀδ − ξ alone. By Stein's identity the mean of a clipped gradient
(in units of C) is aδ∘s with a = E[r²·1(|e| < C/‖x‖)]/C, its variance in direction j is sⱼq/n with
q = E[(r·e)²∧(C·r/‖x‖)²]/C², and both depend on δ through S = Σ sⱼδⱼ² only. So every δⱼ follows a scalar recursion of
three parts: what is left of θ*, the sampling error (the same records at every step), and privacy noise (fresh at every
step). Exact as D and n/D grow; simulated twins (`twin.py`) take over where records are not many times the directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from gratis.planning.twins.problems import Member

__all__ = ["evolved_risks"]

Array = NDArray[np.float64]

_LEVELS = np.geomspace(1e-6, 1e3, 73)  # of S, between which the factors are interpolated
_SPACING = math.log(_LEVELS[1] / _LEVELS[0])


@lru_cache(maxsize=8)
def _normals(count: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=256)
def _clipping_factors(clip: float, label_std: float, spread: float, tail: float) -> tuple[Array, Array]:
    """Return (a·C, q·C²) at every level of S, for a clip norm of `clip` typical lengths.

    `spread` is the deviation of ‖x‖/r around its mean, `tail` that of ln r.
    """
    (g, wg), (h, wh), (k, wk) = _normals(7), _normals(3), _normals(24)
    r = np.exp(tail * g - tail**2)[:, None, None]
    length = np.maximum(1 + spread * h, 0.2)[None, :, None]
    # The law of exp(normal), centred, of the label's deviation: that of `problems.draw_label_noise`.
    label = label_std * ((np.exp(k) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1)))[None, None, :]
    weight = wg[:, None, None] * wh[None, :, None] * wk[None, None, :] * np.square(r)
    bound = clip / (r * length)
    deviation = r * np.sqrt(_LEVELS)[:, None, None, None]
    low, high = (label - bound) / deviation, (label + bound) / deviation
    inside = ndtr(high) - ndtr(low)
    at_low, at_high = (np.exp(-0.5 * np.square(side)) / math.sqrt(2 * math.pi) for side in (low, high))
    # E[e²; |e| < B] for e = v − ξ and v ~ N(0, deviation²), in standard form.
    second = np.square(deviation) * (inside + low * at_low - high * at_high)
    second += 2 * label * deviation * (at_high - at_low) + np.square(label) * inside
    slopes = (weight * inside).sum(axis=(1, 2, 3))
    return slopes, (weight * (second + np.square(bound) * (1 - inside))).sum(axis=(1, 2, 3))


def evolved_risks(
    spectrum: Array,
    weights: Array,
    n_records: int,
    noise_std: float,
    steps: int,
    grid: Array,
    members: Sequence[Member],
    *,
    tail: float,
) -> tuple[Array, Array, Array]:
    """Return E(xᵀθ − xᵀθ*)² of the mean of the last half, for (settings, members), and for θ = 0; and E(xᵀθ)².

    Parameters
    ----------
    spectrum, weights : (D,)
        Second moments of a row, and what alignments of θ* refer to (`problems.Member`).
    n_records : int
        n.
    noise_std : float
        Deviation of the noise of a step, in units of the clip norm.
    steps : int
        T.
    grid : (settings, 2)
        Clip c (C = c√d_eff) and travel τ (η = τ/(cT)) of every setting.
    members : sequence of Member
        What is assumed about signal and label noise.
    tail : float
        Deviation of the logarithm of a row's length.
    """
    effective = max(1.0, float(spectrum.sum()))
    spread = math.sqrt(0.5 * float(np.square(spectrum).sum())) / effective
    signals = np.stack([_signal(spectrum, weights, member) for member in members])
    stds = np.array([math.sqrt(member.label_noise_variance) for member in members])
    (clips, clip_of), (noises, noise_of) = (np.unique(v, return_inverse=True) for v in (grid[:, 0], stds))
    tables = np.array([[_clipping_factors(float(c), float(z), spread, tail) for z in noises] for c in clips])
    rate = (grid[:, 1] * math.sqrt(effective) / steps)[:, None, None]
    scale = (grid[:, 0] * math.sqrt(effective))[:, None]  # C
    shape = len(grid), len(members), spectrum.size
    left, sampled, private = np.ones(shape), np.zeros(shape), np.zeros(shape)
    sum_left, sum_sampled, shared, sum_private = (np.zeros(shape) for _ in range(4))
    kept = (steps + 1) // 2
    for step in range(steps):
        level = ((np.square(left) * signals + np.square(sampled) + private) * spectrum).sum(axis=2)
        # Linear in ln S between the levels, which are equally far apart there.
        place = np.log(np.clip(level, _LEVELS[0], _LEVELS[-1]) / _LEVELS[0]) / _SPACING
        below = np.minimum(place.astype(np.intp), _LEVELS.size - 2)
        part = (place - below)[:, :, None]
        near, far = (tables[clip_of[:, None], noise_of, :, index] for index in (below, below + 1))
        slope, square = np.moveaxis(near + part * (far - near), 2, 0)
        gain = 1 - rate * (slope / scale)[:, :, None] * spectrum
        left = gain * left
        sampled = gain * sampled + rate * np.sqrt(spectrum / n_records) * (np.sqrt(square) / scale)[:, :, None]
        private = np.square(gain) * private + np.square(rate * noise_std)
        if step >= steps - kept:
            sum_private = sum_private + 2 * gain * shared + private
            shared = gain * shared + private
            sum_left, sum_sampled = sum_left + left, sum_sampled + sampled
    remains, noise = sum_left / kept, np.square(sum_sampled / kept) + sum_private / kept**2
    risk = ((np.square(remains) * signals + noise) * spectrum).sum(axis=2)
    energy = ((np.square(1 - remains) * signals + noise) * spectrum).sum(axis=2)
    return risk, np.array([member.signal_variance for member in members]), energy


def _signal(spectrum: Array, weights: Array, member: Member) -> Array:
    """E θ*ⱼ² of a member."""
    drawn = weights**member.alignment
    size = float(spectrum @ drawn)
    return drawn * (member.signal_variance / size if size > 0 else 0.0)
