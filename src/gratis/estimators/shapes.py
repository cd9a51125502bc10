"""What an additive model learnt, in the units of the table: a curve for every column, a surface for every pair.

Everything here is made of released numbers; no row of the data is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.recipes.released_additive import ReleasedAdditive
from gratis.stages.columns import MIDDLES

__all__ = ["Curve", "Shapes", "Surface", "shapes_of", "with_categories"]

Array = NDArray[np.float64]

_BAND = 2.0  # deviations
_TAIL = 0.01  # of a column's released shares, left out on either side of its curve


@dataclass(frozen=True, slots=True)
class Curve:
    """Effect of one column on the prediction (number), or on the log-odds or scores (classes), centred.

    `grid`: values of the column, or its levels (`discrete`: the few values that nearly all records have); `effect`,
    `low`, `high`: (grid,) or (grid, classes), the band being two deviations of what privacy and sampling move, not what
    shrinking takes off a curve; `share`: released share of records at each value. `labels` name the levels of a
    category that became columns of zeros and ones. Values beyond a `knee` were read on a logarithmic scale.
    """

    name: str
    column: int
    categorical: bool
    grid: Array
    effect: Array
    low: Array
    high: Array
    share: Array
    importance: float
    discrete: bool = False
    labels: tuple[str, ...] = ()
    knee: float | None = None


@dataclass(frozen=True, slots=True)
class Surface:
    """Effect of two columns together beyond their curves; `effect` is (grid of the first, grid of the second[, k])."""

    name: str
    columns: tuple[int, int]
    names: tuple[str, str]
    categorical: tuple[bool, bool]
    grids: tuple[Array, Array]
    effect: Array
    deviation: Array
    importance: float
    knees: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Shapes:
    """All terms. `shapes["age"]` finds a curve, `shapes["age × hours"]` a surface."""

    curves: tuple[Curve, ...]
    surfaces: tuple[Surface, ...]

    def __iter__(self) -> Iterator[Curve | Surface]:
        return iter((*self.curves, *self.surfaces))

    def __len__(self) -> int:
        return len(self.curves) + len(self.surfaces)

    def __getitem__(self, name: str) -> Curve | Surface:
        for term in self:
            if term.name == name:
                return term
        raise KeyError(name)

    @property
    def importances(self) -> dict[str, float]:
        """Deviation of every term over the released distribution of its columns, the largest first."""
        return {term.name: term.importance for term in sorted(self, key=lambda term: -term.importance)}


def shapes_of(model: ReleasedAdditive, names: Sequence[str]) -> Shapes:
    """Return the terms of a model whose columns have these names."""
    unit = float(model.target.scale[0])
    return Shapes(
        tuple(_curve(model, j, names[j], unit) for j in range(len(names))),
        tuple(_surface(model, q, names, unit) for q in range(len(model.surfaces))),
    )


def _curve(model: ReleasedAdditive, column: int, name: str, unit: float) -> Curve:
    grid, kept, share = _grid(model, column)
    effect = unit * model.curves[column][: len(share)]
    band = _BAND * unit * model.curve_deviations(column)[: len(share)]
    importance = float(np.sqrt(share @ np.square(effect - share @ effect)).max())
    shown = [_flat(part[kept]) for part in (effect, effect - band, effect + band)]
    categorical = column in model.basis.columns.levels
    discrete = categorical or _is_discrete(share)
    return Curve(
        name, column, categorical, grid[kept], shown[0], shown[1], shown[2], share[kept], importance, discrete,
        knee=model.basis.columns.knee(column),
    )  # fmt: skip


def with_categories(shapes: Shapes, model: ReleasedAdditive, categories: Mapping[str, Mapping[int, str]]) -> Shapes:
    """The same with one term for each category: what having a level adds, instead of a curve for each of its columns.

    `categories`: the columns of zeros and ones of each, with their levels. Deviations at one and at zero are added as
    if they were independent.
    """
    merged = {column for columns in categories.values() for column in columns}
    curves = [curve for curve in shapes.curves if curve.column not in merged]
    return Shapes(
        (*curves, *(_category(model, name, columns) for name, columns in categories.items())), shapes.surfaces
    )


def _category(model: ReleasedAdditive, name: str, columns: Mapping[int, str]) -> Curve:
    unit, scaler = float(model.target.scale[0]), model.basis.columns.features
    effects, bands, shares = [], [], []
    for j in columns:
        share = model.basis.shares.columns[j]
        grid = model.basis.columns.values(j)
        inside = np.flatnonzero(np.abs(MIDDLES) <= scaler.window[j] / scaler.scale[j] + (MIDDLES[1] - MIDDLES[0]))
        no, yes = (int(inside[np.abs(grid[inside] - value).argmin()]) for value in (0.0, 1.0))
        effects.append(unit * (model.curves[j][yes] - model.curves[j][no]))
        deviations = model.curve_deviations(j)
        bands.append(_BAND * unit * np.hypot(deviations[yes], deviations[no]) * (yes != no))
        shares.append(float(share[yes]) if yes != no else 0.0)
    effect, band, weight = np.array(effects), np.array(bands), np.clip(np.array(shares), 0.0, 1.0)
    rest = max(0.0, 1.0 - float(weight.sum()))
    weight = weight / max(float(weight.sum()) + rest, 1e-12)
    importance = float(np.sqrt(np.maximum(weight @ np.square(effect) - np.square(weight @ effect), 0.0)).max())
    shown = [_flat(part) for part in (effect, effect - band, effect + band)]
    grid = np.arange(len(columns), dtype=np.float64)
    return Curve(name, -1, True, grid, *shown, weight, importance, True, tuple(columns.values()))  # type: ignore[call-arg, arg-type, unused-ignore]


def _surface(model: ReleasedAdditive, index: int, names: Sequence[str], unit: float) -> Surface:
    i, j = model.basis.pairs.chosen[index]
    (left, rows, a), (right, columns, b) = _grid(model, i), _grid(model, j)
    effect = unit * model.surfaces[index][: len(a), : len(b)]
    deviation = unit * model.surface_deviations(index)[: len(a), : len(b)]
    importance = float(np.sqrt(np.einsum("s,t,stk->k", a, b, np.square(effect))).max())
    inside = np.ix_(rows, columns)
    levels, knee = model.basis.columns.levels, model.basis.columns.knee
    return Surface(
        f"{names[i]} × {names[j]}", (i, j), (names[i], names[j]), (i in levels, j in levels),
        (left[rows], right[columns]), _flat(effect[inside]), _flat(deviation[inside]), importance, (knee(i), knee(j)),
    )  # fmt: skip


def _grid(model: ReleasedAdditive, column: int) -> tuple[Array, NDArray[np.int64], Array]:
    """Values at the places of a column, which of them to show, and their shares."""
    share, grid = model.basis.shares.columns[column], model.basis.columns.values(column)
    if column in model.basis.columns.levels:
        return grid, np.arange(len(share)), share
    scaler = model.basis.columns.features
    below = np.cumsum(share) - share / 2
    # Beyond the released window nothing can lie, and where hardly anything lies the curve is a guess.
    reach = scaler.window[column] / scaler.scale[column]
    if _is_discrete(share):
        shown = _alone(share)
    else:
        shown = (np.abs(MIDDLES) <= reach + (MIDDLES[1] - MIDDLES[0])) & (below > _TAIL) & (below < 1 - _TAIL)
    return grid, np.flatnonzero(shown), share


def _alone(share: Array) -> NDArray[np.bool_]:
    """Places with a share of their own: both neighbours have less than a tenth of it."""
    beside = np.maximum(np.append(share[1:], 0.0), np.append(0.0, share[:-1]))
    return (share > 0.01) & (beside < 0.1 * share)


def _is_discrete(share: Array) -> bool:
    """Whether two or more separate values have nearly all records."""
    alone = _alone(share)
    return bool(alone.sum() > 1 and share[alone].sum() > 0.85)


def _flat(values: Array) -> Array:
    """Drop the last axis where there is one output."""
    return values[..., 0] if values.shape[-1] == 1 else values
