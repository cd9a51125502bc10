"""Random features f(x) = φ(Vx)ᵀθ: V comes from a public seed and is regenerated block by block, never stored whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf

from gratis.records.checks import check_count
from gratis.records.errors import GratisError

__all__ = ["BLOCK", "ERF", "RELU", "TANH", "Activation", "RandomFeatures", "SquaredErrorModel", "StoredFeatures"]

# Features a block. Part of the law of V: block b is drawn from its own stream, so changing it changes V.
BLOCK = 1024
# Features are whole multiples, at most 2^15, of one power of two: sums of up to 2^23 of their products fit the 53 bits
# of a float64, so Gram matrices carry no rounding error at all, in whatever order they are added.
FIXED_POINT_BITS = 15
_EXACT_UP_TO = 2 ** (53 - 2 * FIXED_POINT_BITS)

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Activation:
    """A function applied to each entry of Vx, with a name for plans and messages.

    With a `limit`, values are clamped to ±limit and rounded to multiples of limit·2^−15, so that Gram matrices are
    exact. ReLU is clamped at 8: inactive for inputs scaled so that ‖x‖ ≈ √d, where vᵀx ~ N(0, 1). `second_moment` is
    E φ(g)², g ~ N(0, 1), where it is known.

    >>> Activation.parse("relu").function(np.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    name: str
    function: Callable[[Array], Array]
    limit: float | None = None
    second_moment: float = 1.0

    @classmethod
    def parse(cls, value: str | Activation | Callable[[Array], Array]) -> Activation:
        """Read an activation from its name, or wrap a function of arrays."""
        if isinstance(value, Activation):
            return value
        if isinstance(value, str):
            found = _NAMED.get(value)
            if found is None:
                raise GratisError(
                    f"unknown activation {value!r}; expected one of {', '.join(map(repr, _NAMED))}, or a function"
                )
            return found
        if callable(value):
            return cls(getattr(value, "__name__", "custom"), value)
        raise GratisError("an activation is a name or a function of arrays")


def _relu(z: Array) -> Array:  # a name, so that fitted models can be pickled
    return np.maximum(z, 0)


TANH = Activation("tanh", np.tanh, limit=1.0, second_moment=0.394)
RELU = Activation("relu", _relu, limit=8.0, second_moment=0.5)
ERF = Activation("erf", erf, limit=1.0, second_moment=2 / math.pi * math.asin(2 / 3))
_NAMED = {activation.name: activation for activation in (TANH, RELU, ERF)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomFeatures:
    """φ(Vx) with V_ij ~ N(0, 1/d), rounded to a fixed grid (see `Activation`).

    V is a function of (seed, p, d) alone: block b has its own Philox stream, so any block can be made again and a
    larger p extends a smaller one. The seed is public and must be chosen independently of the data.

    **The features of a row are a function of that row alone**, to the last bit: V is rounded to a public grid and
    each row to one of its own largest entry, so that Vx has no rounding error in whatever order, and in the company
    of whatever other rows, it is added up.

    Parameters
    ----------
    n_inputs, n_features : int
        d and p.
    activation : Activation, name or function
    seed : int

    >>> features = RandomFeatures(n_inputs=3, n_features=5, seed=1)
    >>> features.transform(np.zeros((2, 3))).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]
    >>> wide = RandomFeatures(n_inputs=3, n_features=9, seed=1)
    >>> bool(np.all(wide.transform(np.ones((1, 3)))[:, :5] == features.transform(np.ones((1, 3)))))
    True
    """

    n_inputs: int
    n_features: int
    activation: Activation = TANH
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_inputs", check_count("n_inputs", self.n_inputs))
        object.__setattr__(self, "n_features", check_count("n_features", self.n_features))
        object.__setattr__(self, "activation", Activation.parse(self.activation))
        object.__setattr__(self, "seed", check_count("seed", self.seed, minimum=0))

    @property
    def exact_gram(self) -> bool:
        """Whether sums of products of features are exact in float64."""
        limit = self.activation.limit
        # Another limit than a power of two would put rounding into the grid itself.
        return limit is not None and math.frexp(limit)[0] == 0.5 and self.n_features <= _EXACT_UP_TO

    @property
    def largest_square_norm(self) -> float:
        """‖φ(Vx)‖² is at most this, whatever x is."""
        return math.inf if self.activation.limit is None else self.n_features * self.activation.limit**2

    @property
    def typical_square_norm(self) -> float:
        """‖φ(Vx)‖² for ‖x‖² = d."""
        return self.n_features * self.activation.second_moment

    @property
    def _bits(self) -> int:
        """Bits of an entry of x and of V with which sums of d products fit into the 53 of a float64."""
        return (53 - math.ceil(math.log2(self.n_inputs))) // 2

    def weights(self, block: int) -> NDArray[np.float64]:
        """Return V[block·BLOCK : (block+1)·BLOCK], cut at p, on its grid."""
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, block))))
        drawn = generator.standard_normal((BLOCK, self.n_inputs), dtype=np.float32)[: self.n_features - block * BLOCK]
        scaled = np.clip(drawn, -8, 8) / math.sqrt(self.n_inputs)
        step = 2.0 ** (math.ceil(math.log2(8 / math.sqrt(self.n_inputs))) - self._bits)
        return np.asarray(np.rint(scaled / step) * step, dtype=np.float64)

    def blocks(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Yield (columns, φ(X V[columns]ᵀ)) in float32; X is (n, d)."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_inputs:
            raise GratisError(f"random features of {self.n_inputs} inputs need rows of that length")
        # What is not finite counts as 0: one record must not spoil a release.
        rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
        # Rows become whole numbers of 2^(exponent − bits), exponent that of their largest entry.
        exponents = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1][:, None]
        whole = np.rint(np.ldexp(np.ldexp(rows, -exponents), self._bits))
        units = np.ldexp(1.0, exponents - self._bits)
        for block in range(-(-self.n_features // BLOCK)):
            start = block * BLOCK
            with np.errstate(all="ignore"):
                inputs = whole @ self.weights(block).T * units
                values = np.asarray(self.activation.function(inputs), dtype=np.float32)
            if self.activation.limit is not None:
                step = np.float32(self.activation.limit / 2**FIXED_POINT_BITS)
                values = np.rint(np.clip(values, -self.activation.limit, self.activation.limit) / step) * step
            yield slice(start, start + values.shape[1]), np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)

    def transform(self, X: Array) -> NDArray[np.float32]:
        """Return Φ whole, (n, p); for small p."""
        filled = np.empty((len(X), self.n_features), dtype=np.float32)
        for columns, values in self.blocks(X):
            filled[:, columns] = values
        return filled


@dataclass(frozen=True, slots=True)
class StoredFeatures:
    """Rows that are their own features (an image transform computed before, or plain columns).

    >>> [columns.stop for columns, _ in StoredFeatures(1500).blocks(np.zeros((2, 1500)))]
    [1024, 1500]
    """

    n_features: int
    exact_gram: bool = False
    largest_square_norm: float = math.inf
    typical_square_norm: float = 1.0

    def blocks(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Yield column blocks of X."""
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise GratisError(f"expected rows of {self.n_features} features")
        for start in range(0, self.n_features, BLOCK):
            columns = slice(start, min(start + BLOCK, self.n_features))
            yield columns, X[:, columns]


class SquaredErrorModel:
    """S0's loss (u − y)², without ½, for one or several outputs: the gradient factor of a record is 2(u − y).

    Written as mean(u) − target with mean 2u and target 2y, the form in which all trainers read a model.

    >>> model = SquaredErrorModel()
    >>> targets = model.targets([1.0])
    >>> model.mean(np.zeros((1, 1, 1))) - targets, model.loss(np.zeros((1, 1, 1)), targets)
    (array([[[-2.]]]), array([[1.]]))
    """

    def __init__(self, outputs: int = 1) -> None:
        self.outputs = check_count("outputs", outputs)

    def targets(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return 2y as (n, 1, outputs)."""
        with np.errstate(over="ignore"):  # a warning would be about that record; infinity contributes nothing
            return 2 * np.asarray(y, dtype=np.float64).reshape(-1, 1, self.outputs)

    def mean(self, scores: Array) -> Array:
        """Return 2u."""
        return 2 * scores

    def loss(self, scores: Array, targets: Array) -> Array:
        """Return Σ(u − y)² over the outputs."""
        return np.asarray(np.square(scores - targets / 2).sum(axis=-1))

    def expected_loss(self, scores: Array, targets: Array, variance: Array) -> Array:
        """Return E Σ(u + e − y)² for independent e ~ N(0, variance) in every output."""
        return np.asarray(self.loss(scores, targets) + self.outputs * variance)
