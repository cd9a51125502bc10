"""How large a twin is, and the risk that every setting reaches on it, simulated or followed without rows.

A twin without rows: what clipped, noisy full-batch descent does to its error, followed by a few numbers a direction.

Rows are x = r·(√s₁g₁, …, √s_D g_D) with log-normal r and normal g, labels xᵀθ* + ξ with skewed ξ. The error δ = θ − θ*
enters a record's gradient through its residual e = xᵀδ − ξ alone. By Stein's identity the mean of a clipped gradient
(in units of C) is aδ∘s with a = E[r²·1(|e| < C/‖x‖)]/C, its variance in direction j is sⱼq/n with
q = E[(r·e)²∧(C·r/‖x‖)²]/C², and both depend on δ through S = Σ sⱼδⱼ² only. So every δⱼ follows a scalar recursion of
three parts: what is left of θ*, the sampling error (the same records at every step), and privacy noise (fresh at every
step). Exact as D and n/D grow; simulated twins take over where records are not many times the directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from gratis.mechanisms.rows import Rows
from gratis.models.generalised_linear import LinearModel
from gratis.models.logistic import SoftmaxModel
from gratis.planning.twins.problems import Member, draw_coefficients, draw_label_noise, draw_rows, thinned
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.stages.full_batch import descend_many

__all__ = ["TwinSize", "evolved_risks", "twin_risks"]

_ROW_TAIL = 0.4
# From here on the recursion and the mean of simulated twins agree within the spread of the latter
# (tests/planning/twins/test_state_evolution.py).
_RECORDS_A_DIRECTION = 10


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
) -> tuple[Array, Array]:
    """Return E(xᵀθ − xᵀθ*)² of the mean of the last half, for (settings, members), and for θ = 0.

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
    return risk, np.array([member.signal_variance for member in members])


def _signal(spectrum: Array, weights: Array, member: Member) -> Array:
    """E θ*ⱼ² of a member."""
    drawn = weights**member.alignment
    size = float(spectrum @ drawn)
    return drawn * (member.signal_variance / size if size > 0 else 0.0)


@dataclass(frozen=True, slots=True)
class TwinSize:
    """A twin of d′ = d/shrunk columns and n′ rows at μ′ with n′μ′ = nμ/shrunk.

    Privacy noise adds ≍ κ²d²/(nμ)² to the risk, so d/(nμ) is kept; so is d/n where n/shrunk rows are affordable.
    """

    spectrum: NDArray[np.float64]
    n_records: int
    mu: float

    @classmethod
    def of(
        cls, spectrum: NDArray[np.float64], n_records: int, *, mu: float, columns: int = 100, rows: int = 2000
    ) -> TwinSize:
        """Shrink a problem to at most `columns` columns and `rows` rows."""
        n = check_count("n_records", n_records)
        kept = thinned(spectrum, columns)
        if kept.size == 0 or not np.isfinite(kept).all() or (kept < 0).any():
            raise GratisError("a spectrum needs at least one eigenvalue, all finite and non-negative")
        shrunk = spectrum.size / kept.size
        n_twin = max(1, min(round(n / shrunk), rows))
        return cls(kept, n_twin, check_positive("mu", mu) * n / (n_twin * shrunk))

    @property
    def needs_no_rows(self) -> bool:
        """Whether records are so many times the directions that the error's own recursion may replace them."""
        return self.n_records >= _RECORDS_A_DIRECTION * self.spectrum.size


def _descents(
    X: NDArray[np.float32],
    targets: NDArray[np.float32],
    mean: object,
    size: TwinSize,
    neighbouring: Neighbouring,
    steps: int,
    grid: NDArray[np.float64],
    copies: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    clips = np.repeat(grid[:, 0], copies)
    travels = np.repeat(grid[:, 1], copies)
    effective = max(1.0, float(size.spectrum.sum()))
    noise_std = np.float32(neighbouring.sensitivity_factor * math.sqrt(steps) / (size.n_records * size.mu))

    def shared(gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        # All settings of a member meet the same noise, so that chance favours none of them.
        drawn = rng.standard_normal((len(gradient), 1, copies, gradient.shape[2]), dtype=np.float32)
        apart = gradient.reshape(len(gradient), -1, copies, gradient.shape[2])
        return (apart + noise_std * drawn).reshape(gradient.shape)

    averaged, _ = descend_many(
        Rows.one_chunk(X, targets),
        mean,  # type: ignore[arg-type]
        steps=steps,
        outputs=targets.shape[2],
        clip_norms=(clips * math.sqrt(effective)).astype(np.float32),
        learning_rates=(travels / (clips * steps)).astype(np.float32)[None],
        add_noise=shared,
    )
    return averaged


def twin_risks(
    size: TwinSize,
    weights: NDArray[np.float64],
    neighbouring: Neighbouring,
    steps: int,
    grid: NDArray[np.float64],
    members: tuple[Member, ...],
    n_classes: int | None,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return risks for (settings, members), and those of θ = 0, of one draw of the twin."""
    if n_classes is None:
        return _regression_risks(size, weights, neighbouring, steps, grid, members, rng)
    return _classification_risks(size, weights, neighbouring, steps, grid, members, n_classes, rng)


def _regression_risks(
    size: TwinSize,
    weights: NDArray[np.float64],
    neighbouring: Neighbouring,
    steps: int,
    grid: NDArray[np.float64],
    members: tuple[Member, ...],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return E(xᵀθ − xᵀθ*)² for (settings, members), and the same for θ = 0."""
    spectrum, count = size.spectrum, len(members)
    if size.needs_no_rows:
        noise_std = neighbouring.sensitivity_factor * math.sqrt(steps) / (size.n_records * size.mu)
        return evolved_risks(spectrum, weights, size.n_records, noise_std, steps, grid, members, tail=_ROW_TAIL)
    X = draw_rows(spectrum, size.n_records, tail=_ROW_TAIL, rng=rng)
    truth = np.stack([draw_coefficients(spectrum, weights, m, rng=rng) for m in members], axis=1)
    noise = np.stack([draw_label_noise(m, size.n_records, rng=rng) for m in members], axis=1)
    targets = np.tile((X @ truth + noise).astype(np.float32), (1, len(grid)))[:, :, None]
    found = _descents(X.astype(np.float32), targets, LinearModel().mean, size, neighbouring, steps, grid, count, rng)
    reached = found[:, :, 0].astype(np.float64).reshape(spectrum.size, len(grid), count)
    null = np.array([m.signal_variance for m in members])
    return np.einsum("j,jsm->sm", spectrum, np.square(reached - truth[:, None, :])), null


def _classification_risks(
    size: TwinSize,
    weights: NDArray[np.float64],
    neighbouring: Neighbouring,
    steps: int,
    grid: NDArray[np.float64],
    members: tuple[Member, ...],
    n_classes: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the excess cross-entropy on fresh rows for (settings, members), and for θ = 0.

    At most three classes are simulated: more only add directions of the same kind, at k times the cost.
    """
    spectrum, count, k = size.spectrum, len(members), min(n_classes, 4)
    model = SoftmaxModel(k)
    draws = [[draw_coefficients(spectrum, weights, m, rng=rng) for _ in range(k)] for m in members]
    truth = np.transpose(np.array(draws), (2, 0, 1))

    def labelled(n: int) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float32]]:
        X = draw_rows(spectrum, n, tail=_ROW_TAIL, rng=rng)
        scores = (X @ truth.reshape(spectrum.size, -1)).reshape(n, count, k)
        labels = (scores + rng.gumbel(size=scores.shape)).argmax(axis=2)
        return X.astype(np.float32), scores, (labels[:, :, None] == np.arange(k)).astype(np.float32)

    X, _, onehot = labelled(size.n_records)
    found = _descents(X, np.tile(onehot, (1, len(grid), 1)), model.mean, size, neighbouring, steps, grid, count, rng)
    fresh, scores, answers = labelled(1000)
    reached = (fresh @ found.reshape(spectrum.size, -1)).reshape(1000, len(grid), count, k)
    best = model.loss(scores, answers).mean(axis=0)
    # One setting at a time: the array of all scores is the largest of the twin.
    risk = np.stack([model.loss(reached[:, s], answers).mean(axis=0) for s in range(len(grid))])
    return np.maximum(risk - best, 0.0), np.maximum(math.log(k) - best, 1e-3)
