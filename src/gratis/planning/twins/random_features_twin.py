"""A twin of private training on random features: the same sizes, y = sign(uᵀx) on Gaussian rows, the dual engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.models.kernels import infinite_width_diagonal, infinite_width_kernel
from gratis.models.random_features import Activation, RandomFeatures, SquaredErrorModel
from gratis.planning.bounds.early_stopping import EarlyStopping
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.stages.dual import simulate_dual
from gratis.stages.feature_descent import EngineChoice, choose_engine
from gratis.stages.gram import Gram, Spectrum, accumulate_gram, decompose

__all__ = [
    "SignTwin",
    "draw_sign_twin",
    "feature_second_moment",
    "gaussian_gram",
    "planned_engine",
    "shrunken",
]

Array = NDArray[Any]

# Above this many features, ΦΦᵀ is drawn as that of Gaussian features with the same covariance.
WIDEST = 20_000
_FEWEST_INPUTS = 10


@dataclass(frozen=True)
class SignTwin:
    """One synthetic data set with its kernel: rows N(0, I_d), labels sign(uᵀx), 1000 test rows by default."""

    n_inputs: int
    n_features: int
    gram: Gram
    spectrum: Spectrum
    y: Array
    y_test: Array
    gaussian: bool = False  # ΦΦᵀ is that of Gaussian features

    @property
    def largest_eigenvalue(self) -> float:
        """λ_max of K."""
        return float(self.spectrum.values[-1])

    @property
    def interpolant_loss(self) -> float:
        """Test loss of θ*: the minimum-norm interpolant, or least squares for p < n."""
        predictions = self.gram.cross @ self.spectrum.solve(self.y)
        return float(np.square(predictions - self.y_test).mean())

    @cached_property
    def projections(self) -> Array:
        """Test features in the basis of the training ones, (m, r): as long to compute as a simulation, used by all."""
        return np.asarray(self.gram.cross @ self.spectrum.whitening())

    @cached_property
    def closed_form(self) -> EarlyStopping:
        """Losses without clipping."""
        return EarlyStopping(
            n_records=len(self.y),
            eigenvalues=self.spectrum.values,
            modes=self.spectrum.vectors.T @ self.y,
            projections=self.projections,
            test_diagonal=self.gram.test_diagonal,
            test_targets=self.y_test,
        )

    def losses(
        self,
        *,
        steps: int,
        learning_rates: Array,
        clip_norms: Array,
        noise_stds: Array,
        n_seeds: int,
        rng: np.random.Generator,
        dtype: Any = np.float32,
    ) -> NDArray[np.float64]:
        """Return test losses (B, S) of B settings (each (B,)) with S noise seeds after `steps` steps."""
        runs = simulate_dual(
            self.gram,
            self.spectrum,
            SquaredErrorModel(),
            self.y,
            self.y_test,
            steps=steps,
            learning_rates=np.asarray(learning_rates)[None, :],
            clip_norms=clip_norms,
            noise_stds=np.asarray(noise_stds)[None, :],
            n_seeds=n_seeds,
            rng=rng,
            dtype=dtype,
            projections=self.projections,
        )
        return np.asarray(runs.test_losses[-1])


def draw_sign_twin(
    n_records: int,
    n_inputs: int,
    n_features: int,
    activation: Activation,
    *,
    rng: np.random.Generator,
    n_test: int = 1000,
    widest: int = WIDEST,
    dtype: Any = np.float64,
) -> SignTwin:
    """Draw the data, the features and the Gram matrix of one twin; above `widest` features by `gaussian_gram`.

    >>> twin = draw_sign_twin(60, 5, 400, Activation.parse("tanh"), rng=np.random.default_rng(0), n_test=50)
    >>> 0 < twin.interpolant_loss < 3
    True
    """
    n, d = check_count("n_records", n_records), check_count("n_inputs", n_inputs)
    p = check_count("n_features", n_features)
    inputs = min(d, n + n_test)
    direction = rng.standard_normal(inputs)
    if inputs == d:
        rows = rng.standard_normal((n + n_test, d))
    else:
        # More inputs than rows: all that counts are inner products, and Bartlett's triangle has the same ones.
        rows = _bartlett(inputs, d, rng) * math.sqrt(inputs / d)
    X, X_test = rows[:n], rows[n:]
    gaussian = p > max(widest, n)
    if gaussian:
        gram = gaussian_gram(
            Gram(
                infinite_width_kernel(X, X, activation),
                infinite_width_kernel(X_test, X, activation),
                infinite_width_diagonal(X_test, activation),
            ),
            p,
            rng=rng,
        )
    else:
        features = RandomFeatures(n_inputs=inputs, n_features=p, activation=activation, seed=int(rng.integers(2**62)))
        gram = accumulate_gram(features, X, X_test, dtype=dtype)
    y, y_test = np.sign(X @ direction), np.sign(X_test @ direction)
    return SignTwin(d, p, gram, decompose(gram.train), y, y_test, gaussian)


def gaussian_gram(kernel: Gram, n_features: int, *, rng: np.random.Generator) -> Gram:
    """Draw ΦΦᵀ of p Gaussian features whose second moments over the records are `kernel`, at n³ whatever p is.

    Features of random weights are independent given the records, with second moments k(x, z), the p = ∞ kernel; that
    their law beyond it does not matter is the Gaussian universality of random features. The width does matter: at
    p = 20n the interpolant's loss is about n/(p − n), a twentieth, above its limit. With k = LLᵀ on the training
    records, ΦΦᵀ is Wishart, (LA)(LA)ᵀ with Bartlett's triangular A; p must be at least the rank of k. Test records
    are drawn independently given the training features: the law of each, hence the expected mean loss, is exact.

    >>> wide = gaussian_gram(Gram(np.eye(2), np.ones((1, 2)) / 2, np.ones(1)), 10**8, rng=np.random.default_rng(0))
    >>> (wide.train / 10**8).round(2).tolist(), (wide.cross / 10**8).round(2).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5]])
    """
    spectrum, p = decompose(kernel.train), n_features
    rank = len(spectrum.values)
    if p < rank:
        raise GratisError(f"Gaussian features need p of at least the rank of the kernel, got {p} and {rank}")
    bartlett = _bartlett(rank, p, rng)
    train = spectrum.factor() @ bartlett
    explained = kernel.cross @ spectrum.whitening()
    spread = np.maximum(kernel.test_diagonal - np.square(explained).sum(axis=1), 0)
    test = explained @ bartlett + np.sqrt(spread)[:, None] * rng.standard_normal((len(explained), rank))
    # What lies outside the span of the training features: p − r independent directions.
    outside = spread * rng.chisquare(p - rank, len(spread)) if p > rank else np.zeros_like(spread)
    return Gram(train @ train.T, test @ train.T, np.square(test).sum(axis=1) + outside)


def _bartlett(size: int, degrees: int, rng: np.random.Generator) -> Array:
    """Return a lower triangle A such that AAᵀ is Wishart: inner products of `size` normal vectors in R^degrees."""
    triangle = np.tril(rng.standard_normal((size, size)), -1)
    np.fill_diagonal(triangle, np.sqrt(rng.chisquare(degrees - np.arange(size))))
    return triangle


def feature_second_moment(activation: Activation) -> float:
    """Return E φ(g)², g ~ N(0, 1): ‖φ(Vx)‖² ≈ p times it when ‖x‖² ≈ d.

    >>> feature_second_moment(Activation.parse("relu"))
    0.5
    """
    moment = float(infinite_width_diagonal(np.ones((1, 1)), activation)[0])
    if not 0 < moment < math.inf:
        raise GratisError(f"the activation {activation.name!r} must be finite and not zero everywhere")
    return moment


def planned_engine(
    event: FullBatchDescent,
    activation: Activation,
    n_inputs: int,
    n_features: int,
    *,
    clip_norm: float,
    learning_rate: float,
    mu: float,
) -> EngineChoice:
    """Return the engine that training will use."""
    features = RandomFeatures(n_inputs=n_inputs, n_features=n_features, activation=activation)
    return choose_engine(features, event, clip_norm=clip_norm, learning_rate=learning_rate, mu=mu, n_inputs=n_inputs)


def shrunken(n_records: int, n_inputs: int, n_features: int, most_records: int) -> tuple[int, int, int, float]:
    """Return (n′, d′, p′) with n′ ≤ most_records, and the factor on μ that keeps the noise in a prediction, ∝ d/(nμ).

    The same d/n and p/n where that leaves ten inputs. Below, d and p stay (p/d at least), for a function of one input
    is another problem: the twin then has less data for the same noise.

    >>> shrunken(20_000, 1000, 10**6, 2000)
    (2000, 100, 100000, 1.0)
    >>> shrunken(20_000, 8, 2000, 400)
    (400, 8, 2000, 50.0)
    """
    share = min(1.0, most_records / n_records)
    small_n = max(1, math.floor(n_records * share + 0.5))
    if share * n_inputs < _FEWEST_INPUTS:
        share = min(1.0, _FEWEST_INPUTS / n_inputs)
    small_d, small_p = (max(1, math.floor(size * share + 0.5)) for size in (n_inputs, n_features))
    return small_n, small_d, small_p, n_records * small_d / (small_n * n_inputs)
