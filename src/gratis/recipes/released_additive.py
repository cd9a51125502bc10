"""A released additive model: curves over places, surfaces over pairs of places, and how rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.location_scale import Standardiser
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.stages.column_histograms import Shares
from gratis.stages.columns import Columns
from gratis.stages.curve_basis import CurveBasis, Pairs

__all__ = ["ReleasedAdditive", "additive_arrays", "additive_facts", "additive_model", "isotonic"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ReleasedAdditive:
    """Scores = offset + intercept + Σ curves + Σ surfaces, in units of the standardised target (or log-odds).

    Everything here is released or public. `covariances` says how far noise moves the coefficients of every term,
    without what is between terms; `explained` is the variance of the scores, the part that is noise, and what the
    scores take off the mean squared error as far as the last gradient can tell.
    """

    basis: CurveBasis
    coefficients: Array
    covariances: tuple[Array, ...] = field(repr=False)
    target: Standardiser
    offset: Array
    n_classes: int | None
    explained: tuple[float, float, float]
    directions: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, basis: CurveBasis, coefficients: Array, covariance: list[Array], *, target: Standardiser, offset: Array,
        n_classes: int | None, explained: tuple[float, float, float],
    ) -> ReleasedAdditive:  # fmt: skip
        """Keep of the covariance (p, p) of every output the blocks of the terms: (outputs, width, width) each."""
        spans = [basis.term(t) for t in range(len(basis.edges) - 1)]
        blocks = tuple(np.stack([whole[span, span] for whole in covariance]) for span in spans)
        return cls(basis, coefficients, blocks, target, offset, n_classes, explained)

    def __post_init__(self) -> None:
        curves = []
        for j, table in enumerate(self.basis.tables):
            curve = table @ self.coefficients[self.basis.term(1 + j)]
            if j in self.directions:
                share = self.basis.shares.columns[j]
                curve = self.directions[j] * isotonic(self.directions[j] * curve, share)
            curves.append(curve)
        surfaces = []
        for q, (i, j) in enumerate(self.basis.pairs.chosen):
            left, right = self.basis.sides[i], self.basis.sides[j]
            own = self.coefficients[self.basis.term(1 + len(curves) + q)].reshape(left.shape[1], right.shape[1], -1)
            surfaces.append(np.einsum("sa,abk,tb->stk", left, own, right))
        object.__setattr__(self, "curves", curves)
        object.__setattr__(self, "surfaces", surfaces)

    curves: list[Array] = field(init=False, repr=False)
    surfaces: list[Array] = field(init=False, repr=False)

    @property
    def outputs(self) -> int:
        """Scores of a record."""
        return self.coefficients.shape[1]

    @property
    def constant(self) -> Array:
        """Score where all terms are 0."""
        return self.offset + self.coefficients[0]

    def contributions(self, X: Array) -> Array:
        """Return (m, terms, outputs): what every column and every pair adds to the scores."""
        places = self.basis.columns.places(X)
        found = [curve[places[:, j]] for j, curve in enumerate(self.curves)]
        for (i, j), surface in zip(self.basis.pairs.chosen, self.surfaces, strict=True):
            found.append(surface[places[:, i], places[:, j]])
        return np.stack(found, axis=1)

    def scores(self, X: Array) -> Array:
        """Return (m, outputs)."""
        return np.asarray(self.constant + self.contributions(X).sum(axis=1))

    def curve_deviations(self, column: int) -> Array:
        """Deviation by privacy and sampling of a curve at every place: (places, outputs)."""
        return _deviations(self.basis.tables[column], self.covariances[1 + column])

    def surface_deviations(self, index: int) -> Array:
        """Deviation by privacy and sampling of a surface: (places of i, places of j, outputs)."""
        table = self.basis.pair_table(index)
        cov = self.covariances[1 + self.basis.columns.n_columns + index]
        return _deviations(table.reshape(-1, table.shape[2]), cov).reshape(*table.shape[:2], -1)

    def shrunk(self, share: float) -> ReleasedAdditive:
        """The model with this share of all its terms: nearer to the released mean. Post-processing."""
        return replace(
            self, coefficients=share * self.coefficients, covariances=tuple(share**2 * c for c in self.covariances),
            explained=(share**2 * self.explained[0], self.explained[1], self.explained[2]),
        )  # fmt: skip

    def projected(self, directions: Mapping[int, int]) -> ReleasedAdditive:
        """The model with monotone curves: +1 increasing, −1 decreasing. Post-processing."""
        return ReleasedAdditive(
            self.basis, self.coefficients, self.covariances, self.target, self.offset, self.n_classes, self.explained,
            dict(directions),
        )  # fmt: skip


def additive_arrays(model: ReleasedAdditive) -> dict[str, Array]:
    """The released arrays from which `additive_model` makes the model again (the maps of columns and target apart)."""
    flat = [block.reshape(len(block), -1).T for block in model.covariances]
    return {
        "coefficients": model.coefficients,
        "covariances": np.concatenate(flat),
        "shares": np.concatenate(model.basis.shares.columns),
        "offset": model.offset,
        "explained": np.array(model.explained),
    }


def additive_facts(model: ReleasedAdditive) -> dict[str, Any]:
    """What is to be said beside the arrays, for JSON."""
    basis = model.basis
    return {
        "features": {"impute": basis.columns.features.impute},
        "target": {"impute": False},
        "levels": [[column, count] for column, count in basis.columns.levels.items()],
        "cosines": basis.n_cosines,
        "pairs": [list(pair) for pair in basis.pairs.chosen],
        "coordinates": basis.pairs.coordinates,
        "directions": [[column, sign] for column, sign in model.directions.items()],
    }


def additive_model(
    arrays: Mapping[str, NDArray[Any]],
    facts: Mapping[str, Any],
    features: Standardiser,
    target: Standardiser,
    n_classes: int | None,
) -> ReleasedAdditive:
    """Read a model back; sizes that do not fit together are refused."""
    d = len(features.centre)
    levels = {_column(column, d): check_count("levels", count, minimum=2) for column, count in facts["levels"]}
    columns = Columns(features, levels)
    pairs = tuple((_column(i, d), _column(j, d)) for i, j in facts["pairs"])
    # A model has at most a few hundred features: more than its own arrays hold would be a forgery that eats memory.
    width = len(arrays["coefficients"])
    cosines = check_count("cosines", facts["cosines"], minimum=0)
    coordinates = check_count("coordinates", facts["coordinates"])
    if max(cosines, coordinates, len(pairs)) > width or arrays["shares"].shape != (sum(columns.sizes),):
        raise GratisError("the sizes of the model do not fit together")
    shares = Shares(tuple(np.split(arrays["shares"], np.cumsum(columns.sizes)[:-1])))
    basis = CurveBasis(columns, shares, cosines, Pairs(pairs, coordinates))
    spans = [basis.term(t) for t in range(len(basis.edges) - 1)]
    sizes = [(span.stop - span.start) ** 2 for span in spans]
    if basis.width != width or len(arrays["covariances"]) != sum(sizes):
        raise GratisError("the sizes of the model do not fit together")
    flat = np.split(arrays["covariances"], np.cumsum(sizes)[:-1])
    blocks = tuple(part.T.reshape(-1, *[round(len(part) ** 0.5)] * 2) for part in flat)
    signs = {_column(column, d): 1 if sign == 1 else -1 for column, sign in facts["directions"]}
    signal, unknown, gain = map(float, arrays["explained"])
    return ReleasedAdditive(
        basis, arrays["coefficients"], blocks, target, arrays["offset"], n_classes, (signal, unknown, gain),
        signs,
    )  # fmt: skip


def _column(position: Any, n_columns: int) -> int:
    found = check_count("a column", position, minimum=0)
    if found >= n_columns:
        raise GratisError("the model names a column that it does not have")
    return found


def isotonic(curve: Array, share: Array) -> Array:
    """The nearest increasing curve, places weighted by their shares; each column of (places, outputs) apart.

    >>> isotonic(np.array([[1.0], [0.0], [3.0]]), np.array([0.25, 0.25, 0.5])).ravel()
    array([0.5, 0.5, 3. ])
    """
    found = np.empty_like(curve)
    for k in range(curve.shape[1]):
        values: list[float] = []
        weights: list[float] = []
        sizes: list[int] = []
        for value, weight in zip(curve[:, k], share, strict=True):
            values.append(float(value))
            weights.append(float(weight))
            sizes.append(1)
            while len(values) > 1 and values[-2] > values[-1]:  # pool adjacent violators
                total = weights[-2] + weights[-1]
                values[-2:] = [(values[-2] * weights[-2] + values[-1] * weights[-1]) / total]
                weights[-2:], sizes[-2:] = [total], [sizes[-2] + sizes[-1]]
        found[:, k] = np.repeat(values, sizes)
    return found


def _deviations(table: Array, covariance: Array) -> Array:
    """Root of the diagonal of table·covariance·tableᵀ for every output."""
    squares = [np.einsum("ia,ab,ib->i", table, block, table, optimize=True) for block in covariance]
    return np.sqrt(np.maximum(np.stack(squares, axis=1), 0.0))
