"""Time stepping of the deterministic equivalent: the linear part exactly, the clipping factors at the midpoint.

Over a step of length h the descent and noise of atom j are (with η̄, c and the risk frozen at the middle)

    D_j ← e^{−z_j}·D_j + φ(z_j)·(v_j·b + q_j·s),   z_j = l_j·α,   α = 2hη̄μ_c,   b = hγη̄²·ν_c·P,   φ(z) = (1−e^{−z})/z,

where s is the private noise of the step, exactly the drop of a² over it: stiff problems (large η̄·λ) cost no
stability. The middle risk comes from a half step; the scheme is of second order, and `deterministic_equivalent`
extrapolates it. `steps_gradient` is the exact transpose of `run_steps`.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.clipping_factors import clipped_moments

__all__ = ["run_steps", "steps_gradient"]

Array = NDArray[np.float64]

# Sums may be reordered (so that loops vectorise); infinities and NaN keep their meaning.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}


@numba.njit(cache=True, inline="always")
def _phi(z: float, decay: float) -> float:
    return (1.0 - decay) / z if z > 1e-4 else 1.0 - z * (0.5 - z / 6.0)


@numba.njit(cache=True, inline="always")
def _phi_slope(z: float, decay: float, phi: float) -> float:
    return (decay - phi) / z if z > 1e-3 else -0.5 + z * (1 / 3 - z / 8.0)


@numba.njit(cache=True, fastmath=_REORDER)
def _decays(decay: Array, alpha: float, largest: float, out: Array) -> None:
    """Fill out[j] = e^{−decay_j·alpha} by Taylor's series of the 2^s-th root: unlike exp, the loops vectorise.

    The root of the largest exponent is at most ¼, where ten terms leave 1e−14; s squarings lose s bits at most,
    and only where e^{−z} is small against 1.
    """
    squarings, scale = 0, alpha
    while largest * scale > 0.25:
        scale *= 0.5
        squarings += 1
    if squarings > 40:
        for j in range(decay.size):
            out[j] = math.exp(-decay[j] * alpha)
        return
    for j in range(decay.size):
        x = -decay[j] * scale
        y = 1 + x / 8 * (1 + x / 9)
        y = 1 + x / 5 * (1 + x / 6 * (1 + x / 7 * y))
        out[j] = 1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * y)))
    for _ in range(squarings):
        for j in range(decay.size):
            out[j] *= out[j]


@numba.njit(cache=True, nogil=True, fastmath=_REORDER)
def run_steps(
    lengths: Array,
    rates: Array,
    clips: Array,
    noise: Array,
    which: NDArray[np.int64],
    gammas: Array,
    label_terms: Array,
    atoms: Array,
    lumps: bool,
    risks: Array,
) -> None:
    """Fill risks[b, k] with the excess risk at the start of step k (the last column: at the end).

    rates (already capped), clips, noise: (B, K), per step. which: (B,), the problem of every row. gammas and
    label_terms (ζ²/2): one for each problem. atoms: (problems, 5, m) with rows decay l, readout, initial D,
    variance v, noise q. lumps: noise arrives at the end of its step, not spread over it. risks: (B, K+1), written.
    """
    spread = 0.0 if lumps else 1.0
    count = atoms.shape[2]
    state, factor = np.empty(count), np.empty(count)
    for b in range(rates.shape[0]):
        table = atoms[which[b]]
        gamma, label = gammas[which[b]], label_terms[which[b]]
        decay, readout, variance, share = table[0], table[1], table[3], table[4]
        largest, risk = 0.0, 0.0
        for j in range(count):
            state[j] = table[2, j]
            risk += readout[j] * state[j]
            largest = max(largest, decay[j])
        risks[b, 0] = risk
        for k in range(lengths.size):
            h, rate = lengths[k], rates[b, k]
            moments = clipped_moments(risk + label, clips[b, k])
            alpha = h * rate * moments[0]
            drift = 0.5 * h * gamma * rate * rate * moments[1]
            kick = 0.5 * spread * noise[b, k]
            _decays(decay, alpha, largest, factor)
            middle = 0.0
            for j in range(count):
                phi = _phi(decay[j] * alpha, factor[j])
                middle += readout[j] * (factor[j] * state[j] + phi * (variance[j] * drift + share[j] * kick))
            moments = clipped_moments(middle + label, clips[b, k])
            alpha = 2.0 * h * rate * moments[0]
            drift = h * gamma * rate * rate * moments[1]
            kick, lump = spread * noise[b, k], (1.0 - spread) * noise[b, k]
            _decays(decay, alpha, largest, factor)
            risk = 0.0
            for j in range(count):
                phi = _phi(decay[j] * alpha, factor[j])
                state[j] = factor[j] * state[j] + phi * (variance[j] * drift + share[j] * kick) + share[j] * lump
                risk += readout[j] * state[j]
            risks[b, k + 1] = risk


@numba.njit(cache=True, nogil=True, fastmath=_REORDER)
def steps_gradient(
    lengths: Array,
    rates: Array,
    clips: Array,
    noise: Array,
    gamma: float,
    label: float,
    atoms: Array,
    gradient: Array,
) -> float:
    """Return the final risk of one trajectory; gradient (3, K) receives its derivatives in rates, clips, noise.

    atoms: (5, m). Reverse accumulation: one forward pass that stores the states, one backward pass.
    """
    steps, count = lengths.size, atoms.shape[1]
    decay, readout, variance, share = atoms[0], atoms[1], atoms[3], atoms[4]
    states, factors = np.empty((steps + 1, count)), np.empty((2, steps, count))
    # Risk at the start (the half step's) and in the middle (the full step's) of every step.
    risks = np.empty((2, steps))
    bar, weights = np.empty(count), np.empty(count)
    largest, risk = 0.0, 0.0
    for j in range(count):
        states[0, j] = atoms[2, j]
        bar[j] = readout[j]
        risk += readout[j] * states[0, j]
        largest = max(largest, decay[j])
    for k in range(steps):
        rate = rates[k]
        for stage in range(2):
            share_of_step = 0.5 * (stage + 1)
            h, kick, factor = share_of_step * lengths[k], share_of_step * noise[k], factors[stage, k]
            risks[stage, k] = risk
            moments = clipped_moments(risk + label, clips[k])
            alpha, drift = 2.0 * h * rate * moments[0], h * gamma * rate * rate * moments[1]
            _decays(decay, alpha, largest, factor)
            risk = 0.0
            for j in range(count):
                phi = _phi(decay[j] * alpha, factor[j])
                states[k + 1, j] = factor[j] * states[k, j] + phi * (variance[j] * drift + share[j] * kick)
                risk += readout[j] * states[k + 1, j]

    for k in range(steps - 1, -1, -1):
        rate = rates[k]
        for j in range(count):
            weights[j] = bar[j]
            bar[j] = 0.0
        for row in range(3):
            gradient[row, k] = 0.0
        for stage in range(1, -1, -1):
            share_of_step = 0.5 * (stage + 1)
            h, kick, factor = share_of_step * lengths[k], share_of_step * noise[k], factors[stage, k]
            moments = clipped_moments(risks[stage, k] + label, clips[k])
            alpha, drift = 2.0 * h * rate * moments[0], h * gamma * rate * rate * moments[1]
            bar_alpha, bar_drift, bar_kick = 0.0, 0.0, 0.0
            for j in range(count):
                z, e = decay[j] * alpha, factor[j]
                phi = _phi(z, e)
                source = variance[j] * drift + share[j] * kick
                bar_alpha += weights[j] * decay[j] * (_phi_slope(z, e, phi) * source - e * states[k, j])
                bar_drift += weights[j] * phi * variance[j]
                bar_kick += weights[j] * phi * share[j]
                bar[j] += weights[j] * e
            bar_mu, bar_w = 2.0 * h * rate * bar_alpha, h * gamma * rate * rate * bar_drift
            gradient[0, k] += 2.0 * h * (moments[0] * bar_alpha + gamma * rate * moments[1] * bar_drift)
            gradient[1, k] += bar_mu * moments[4] + bar_w * moments[5]
            gradient[2, k] += share_of_step * bar_kick
            # The risk that this stage froze is the readout of what came before it.
            bar_risk = bar_mu * moments[2] + bar_w * moments[3]
            for j in range(count):
                weights[j] = bar_risk * readout[j]
        for j in range(count):
            bar[j] += weights[j]
    return risk
