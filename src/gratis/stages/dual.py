"""Full-batch DP-GD on features, simulated in the dual: exact in law, at n² a step whatever p is.

With K = ΦΦᵀ = LLᵀ and u = Φθ, Algorithm 1 of S0 moves u by −(1/n)K·(ηw) + s·L·g with g ~ N(0, I): the law of the
predictions, and of θ, is exactly that of the algorithm in R^p. docs/proofs/dual-engine.md has the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.stages.gram import Gram, Spectrum

__all__ = ["DualRuns", "ScoreModel", "clipped_factors", "simulate_dual"]

Array = NDArray[Any]

# Noise is coloured by L for this many columns at once: a matrix product instead of matrix-vector products.
_NOISE_COLUMNS = 64


class ScoreModel(Protocol):
    """A loss of scores: gradient factor mean(scores) − targets."""

    @property
    def outputs(self) -> int:
        """Scores a record."""

    def targets(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return targets (n, 1, outputs)."""

    def mean(self, scores: Array) -> Array:
        """Map scores to means, over the last axis."""

    def loss(self, scores: Array, targets: Array) -> Array:
        """Return the loss of each record."""


@dataclass(frozen=True, slots=True)
class DualRuns:
    """Simulated runs: B settings × S seeds. `test_losses` (R, B, S) at the R recorded `steps`.

    `scores` (m, B, S, k) and `variances` (B, m) hold the last recorded test predictions: given all that a run drew,
    the prediction at test point j is N(scores_j, variances_j).
    """

    steps: tuple[int, ...]
    test_losses: Array
    scores: Array
    variances: Array


def clipped_factors(model: ScoreModel, scores: Array, targets: Array, norms: Array, clip_norms: Array) -> Array:
    """Return wᵢ = fᵢ·min(1, C/(‖φᵢ‖‖fᵢ‖)) with fᵢ = mean(scores) − targets; shapes (n, …, k).

    The gradient of record i is φᵢfᵢᵀ, so its norm is ‖φᵢ‖‖fᵢ‖ and clipping is exact without forming it. A factor
    that is not finite, or of a record without features, becomes 0.
    """
    with np.errstate(all="ignore"):
        factors = model.mean(scores) - targets
        # numpy is slow at sums over an axis of length one.
        lengths = np.abs(factors[..., 0]) if factors.shape[-1] == 1 else np.sqrt(np.square(factors).sum(axis=-1))
        sizes = lengths * norms
        # A record without features has no gradient, however large its factor: 0, or later products would be 0·∞.
        factors *= np.minimum(1, np.divide(clip_norms, sizes, out=np.zeros_like(sizes), where=sizes > 0))[..., None]
        bounded = np.isfinite(sizes)
    return factors if bounded.all() else np.where(bounded[..., None], factors, 0)


def _coloured_noise(
    draw: Callable[[tuple[int, int]], Array], factor: Array, steps: int, columns: int
) -> Iterator[tuple[Array, Array]]:
    """Yield (g, L·g) for each step, g of shape (r, columns)."""
    together = max(1, _NOISE_COLUMNS // columns)
    for start in range(0, steps, together):
        count = min(together, steps - start)
        white = draw((factor.shape[1], count * columns))
        coloured = factor @ white
        for t in range(count):
            part = slice(t * columns, (t + 1) * columns)
            yield white[:, part], coloured[:, part]


def simulate_dual(
    gram: Gram,
    spectrum: Spectrum,
    model: ScoreModel,
    y: ArrayLike,
    y_test: ArrayLike,
    *,
    steps: int,
    learning_rates: Array,
    clip_norms: Array,
    noise_stds: Array,
    n_seeds: int,
    rng: np.random.Generator,
    record: Sequence[int] | None = None,
    dtype: Any = np.float64,
    projections: Array | None = None,
) -> DualRuns:
    """Run B settings × S seeds at once, one matrix product a step, and return expected test losses.

    **For simulated or public data only**: the test loss averages over the noise that is still undrawn given the
    training scores (analytically for the squared loss, one draw for each test point otherwise), which is not a
    function of anything released; B settings or S seeds would be B·S releases. Settings share the noise of a seed
    (common random numbers), so differences between them are estimated better than each alone.

    Parameters
    ----------
    gram, spectrum : Gram, Spectrum
        K with Φ_testΦᵀ, and K's decomposition; the p = ∞ kernel times p is allowed here.
    steps : int
        T for all settings; use learning rates to vary ηT.
    learning_rates, noise_stds : (T or 1, B)
    clip_norms : (B,)
        `numpy.inf` for no clipping.
    record : sequence of steps at which test losses are wanted; the last step by default.
    projections : (m, r)
        Φ_testΦᵀUΛ^{−1/2}, where it is known already.

    >>> from gratis.models.random_features import RandomFeatures, SquaredErrorModel
    >>> from gratis.stages.gram import accumulate_gram, decompose
    >>> X, rng = np.eye(3), np.random.default_rng(0)
    >>> gram = accumulate_gram(RandomFeatures(n_inputs=3, n_features=4000), X, X)
    >>> runs = simulate_dual(gram, decompose(gram.train), SquaredErrorModel(), [1, -1, 1], [1, -1, 1], steps=300,
    ...     learning_rates=np.array([[1e-3]]), clip_norms=np.array([np.inf]), noise_stds=np.zeros((1, 1)), n_seeds=1,
    ...     rng=rng)
    >>> bool(runs.test_losses[0, 0, 0] < 1e-3)
    True
    """
    if not isinstance(rng, np.random.Generator):
        raise GratisError("simulate_dual takes a public rng for simulated data; a release is made by descend_features")
    steps, n_seeds = check_count("steps", steps), check_count("n_seeds", n_seeds)
    clip_norms = np.asarray(clip_norms, dtype=dtype)
    if clip_norms.ndim != 1 or not (clip_norms > 0).all():
        raise GratisError("clip norms must be positive, one for each setting")
    n, batch, k = len(gram.train), clip_norms.size, model.outputs
    shape = (n_seeds, batch, k)  # settings inside: numpy is slow at short inner axes, and there are few seeds
    rates = np.broadcast_to(np.asarray(learning_rates, dtype=dtype), (steps, batch))[:, :, None] / n
    stds = np.broadcast_to(np.asarray(noise_stds, dtype=dtype), (steps, batch))[:, :, None]
    wanted = sorted({check_count("a recorded step", t) for t in (record if record is not None else (steps,))})
    targets = model.targets(y)[:, :, None, :].astype(dtype)
    test_targets = model.targets(y_test)[:, :, None, :].astype(dtype)
    K, cross = gram.train.astype(dtype, copy=False), gram.cross.astype(dtype, copy=False)
    norms = np.sqrt(np.diag(gram.train)).astype(dtype)[:, None, None]
    factor = spectrum.factor().astype(dtype, copy=False)
    projected = (gram.cross @ spectrum.whitening() if projections is None else projections).astype(dtype)  # Aᵀ, (m, r)
    left_over = np.maximum(gram.test_diagonal - np.square(projected).sum(axis=1), 0)
    noisy = bool(stds.any())

    scores = np.zeros((n, *shape), dtype=dtype)
    weights = np.zeros((n, *shape), dtype=dtype)  # Σ (η_t/n) w_t
    drawn = np.zeros((factor.shape[1], *shape), dtype=dtype)  # Σ s_t g_t
    variance = np.zeros(batch)  # Σ s_t²
    losses: list[Array] = []
    means, variances = np.zeros((len(cross), *shape)), np.zeros((batch, len(cross)))
    noise = _coloured_noise(lambda size: rng.standard_normal(size, dtype=dtype), factor, steps, n_seeds * k)
    for t in range(steps):
        moved = clipped_factors(model, scores, targets, norms, clip_norms)
        moved *= rates[t]
        weights += moved
        scores -= (K @ moved.reshape(n, -1)).reshape(n, *shape)
        if noisy:
            white, coloured = next(noise)
            drawn += stds[t] * white.reshape(-1, n_seeds, 1, k)
            scores += stds[t] * coloured.reshape(n, n_seeds, 1, k)
            variance += np.square(stds[t, :, 0], dtype=np.float64)
        if t + 1 in wanted:
            means = (projected @ drawn.reshape(len(drawn), -1) - cross @ weights.reshape(n, -1)).reshape(-1, *shape)
            variances = np.multiply.outer(variance, left_over)
            losses.append(_test_loss(model, means, variances, test_targets, rng))
    return DualRuns(tuple(wanted), np.array(losses), means.swapaxes(1, 2), variances)


def _test_loss(model: ScoreModel, means: Array, variances: Array, targets: Array, rng: np.random.Generator) -> Array:
    """Return the mean over test points of the loss averaged over the undrawn noise, (B, S)."""
    spread = variances.T[:, None, :]
    if hasattr(model, "expected_loss"):
        return np.asarray(model.expected_loss(means, targets, spread).mean(axis=0, dtype=np.float64)).T
    # Only the marginal law at each point matters for a mean of losses.
    sampled = means + np.sqrt(spread)[..., None] * rng.standard_normal(means.shape)
    return np.asarray(model.loss(sampled, targets).mean(axis=0, dtype=np.float64)).T
