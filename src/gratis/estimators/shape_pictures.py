"""Pictures of an additive model: curves with bands, surfaces as heat maps, on one scale so that they compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gratis.estimators.shapes import Curve, Shapes, Surface

__all__ = ["draw_shapes", "draw_terms"]

_INK, _SOFT, _LINE = "#232a35", "#5a6475", "#d9dce2"
_COLOURS = ("#1f6f8b", "#c8553d", "#5b8c5a", "#7d5ba6", "#d9a441", "#4f6d7a", "#a23b72", "#6b705c")
_MOST_LEVELS = 16  # that still have readable bars
_LONGEST = 14  # characters of a level's name
_MOST_MARKS = 6  # powers of ten on an axis


def draw_shapes(shapes: Shapes, terms: int, *, classes: Sequence[str] | None = None) -> Any:
    """Draw the most important terms; curves share one vertical axis and surfaces one scale of colours."""
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    chosen = sorted(shapes, key=lambda term: -term.importance)[:terms]
    curves = [term for term in chosen if isinstance(term, Curve)]
    surfaces = [term for term in chosen if isinstance(term, Surface)]
    columns = min(4, max(len(curves), len(surfaces), 1))
    heights = [2.3 * -(-len(curves) // columns), 2.55 * -(-len(surfaces) // columns)]
    figure = Figure(figsize=(3.0 * columns, sum(heights) + 0.4), layout="constrained", dpi=110)
    parts = [height for height in heights if height]
    panels: list[Any] = (
        list(np.ravel(np.asarray(figure.subfigures(len(parts), 1, height_ratios=parts)))) if parts else []
    )
    several = any(curve.effect.ndim == 2 for curve in curves)
    limits = _limits(curves)
    if curves:
        panel = panels.pop(0)
        grid = panel.add_gridspec(-(-len(curves) // columns), columns)
        for place, curve in enumerate(curves):
            axes = panel.add_subplot(grid[place // columns, place % columns])
            _draw_curve(axes, curve, limits, first=place % columns == 0)
        if several and classes:
            lines = panel.axes[0].get_lines()[1:]
            panel.legend(
                lines, list(classes)[: len(lines)], loc="outside lower center", ncols=min(len(lines), 8), frameon=False,
                fontsize=8,
            )  # fmt: skip
    if surfaces:
        panel = panels.pop(0)
        grid = panel.add_gridspec(-(-len(surfaces) // columns), columns)
        largest = max(max(float(np.abs(_one(surface)).max()) for surface in surfaces), 1e-12)
        norm = TwoSlopeNorm(0.0, -largest, largest)
        for place, surface in enumerate(surfaces):
            mesh = _draw_surface(panel.add_subplot(grid[place // columns, place % columns]), surface, norm)
        bar = panel.colorbar(mesh, ax=panel.axes, shrink=0.9, aspect=30, pad=0.015)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=7, colors=_SOFT, length=2)
    unit = "effect on the prediction" if classes is None else "effect on the log-odds" if not several else "scores"
    figure.suptitle(f"{unit}, with bands of two deviations; most important terms first", fontsize=9, color=_SOFT)
    return figure


def draw_terms(shapes: Shapes, terms: int, *, classes: Sequence[str] | None = None) -> list[tuple[str, Any]]:
    """The most important terms, each as a figure of its own on the scales of all: for narrow screens."""
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    chosen = sorted(shapes, key=lambda term: -term.importance)[:terms]
    limits = _limits([term for term in chosen if isinstance(term, Curve)])
    largest = max([float(np.abs(_one(term)).max()) for term in chosen if isinstance(term, Surface)] + [1e-12])
    found = []
    for term in chosen:
        figure = Figure(figsize=(3.2, 2.5), layout="constrained", dpi=110)
        axes = figure.add_subplot()
        if isinstance(term, Curve):
            _draw_curve(axes, term, limits, first=True)
            if term.effect.ndim == 2 and classes:
                lines = axes.get_lines()[1:]
                axes.legend(lines, list(classes)[: len(lines)], fontsize=6, frameon=False)
        else:
            mesh = _draw_surface(axes, term, TwoSlopeNorm(0.0, -largest, largest))
            bar = figure.colorbar(mesh, ax=axes, aspect=30)
            bar.outline.set_visible(False)
            bar.ax.tick_params(labelsize=7, colors=_SOFT, length=2)
        found.append((term.name, figure))
    return found


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """One vertical axis for all curves: their effects, and bands as far as they are not out of all proportion."""
    if not curves:
        return -1.0, 1.0
    low, high = min(float(c.effect.min()) for c in curves), max(float(c.effect.max()) for c in curves)
    room = 0.35 * max(high - low, 1e-12)
    low = max(min(float(c.low.min()) for c in curves), low - room)
    high = min(max(float(c.high.max()) for c in curves), high + room)
    pad = 0.05 * max(high - low, 1e-12)
    return low - pad, high + pad


def _draw_curve(axes: Any, curve: Curve, limits: tuple[float, float], *, first: bool) -> None:
    effect, low, high = (np.atleast_2d(part.T) for part in (curve.effect, curve.low, curve.high))
    axes.axhline(0.0, color=_LINE, lw=0.8, zorder=0)
    for k, colour in zip(range(len(effect)), _cycled(len(effect)), strict=True):
        if curve.discrete and (len(curve.grid) <= _MOST_LEVELS or not curve.categorical or curve.labels):
            gap = float(np.diff(curve.grid).min()) if len(curve.grid) > 1 else 1.0
            shift = 0.0 if len(effect) == 1 else 0.6 * gap * (k / (len(effect) - 1) - 0.5)
            width = 5 if len(curve.grid) * len(effect) <= _MOST_LEVELS else 2.5
            axes.vlines(curve.grid + shift, low[k], high[k], color=colour, lw=width, alpha=0.28)
            axes.plot(curve.grid + shift, effect[k], "o", color=colour, ms=3.5)
        elif curve.categorical:
            order = np.argsort(effect[k])
            axes.fill_between(curve.grid, low[k][order], high[k][order], color=colour, alpha=0.22, lw=0, step="mid")
            axes.plot(curve.grid, effect[k][order], ".", color=colour, ms=4)
        else:
            axes.fill_between(curve.grid, low[k], high[k], color=colour, alpha=0.22, lw=0)
            axes.plot(curve.grid, effect[k], color=colour, lw=1.6, solid_capstyle="round")
    axes.set_ylim(*limits)
    many = curve.categorical and len(curve.grid) > _MOST_LEVELS and not curve.labels
    _plain(axes, curve.name + (" (levels, sorted)" if many else ""))
    if curve.labels:
        names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in curve.labels]
        size = 7 if len(names) <= _MOST_LEVELS else 5
        axes.set_xticks(curve.grid, names, rotation=90 if len(names) > 3 else 0, fontsize=size)
        axes.set_xlim(-0.6, len(names) - 0.4)
    elif curve.categorical and len(curve.grid) <= _MOST_LEVELS:
        axes.set_xticks(curve.grid, [f"{level:g}" for level in curve.grid])
    _as_read(axes, "x", curve.knee, curve.grid)
    if not first:
        axes.tick_params(labelleft=False)
    axes.grid(axis="y", color=_LINE, lw=0.5, alpha=0.6)
    axes.set_axisbelow(True)


def _draw_surface(axes: Any, surface: Surface, norm: Any) -> Any:
    (left, right), effect = surface.grids, _one(surface)
    mesh = axes.pcolormesh(right, left, effect, cmap="RdBu_r", norm=norm, shading="nearest", rasterized=True)
    _plain(axes, surface.name)
    axes.set_xlabel(surface.names[1], fontsize=7, color=_SOFT, labelpad=1)
    axes.set_ylabel(surface.names[0], fontsize=7, color=_SOFT, labelpad=1)
    for side, categorical, grid in zip(("y", "x"), surface.categorical, surface.grids, strict=True):
        if categorical and len(grid) <= _MOST_LEVELS:
            getattr(axes, f"set_{side}ticks")(grid, [f"{level:g}" for level in grid])
    for side, knee, grid in zip(("y", "x"), surface.knees, surface.grids, strict=True):
        _as_read(axes, side, knee, grid)
    return mesh


def _as_read(axes: Any, side: str, knee: float | None, grid: Any) -> None:
    """Draw an axis on the logarithmic scale on which its column was read, with zero and some powers of ten."""
    if knee is None or not len(grid):
        return
    from matplotlib.ticker import NullLocator

    low, high = float(np.min(grid)), float(np.max(grid))
    getattr(axes, f"set_{side}scale")("asinh", linear_width=knee)
    powers = 10.0 ** np.arange(np.ceil(np.log10(knee)), np.floor(np.log10(max(-low, high, 10 * knee))) + 1)
    marks = np.concatenate([-powers[::-1], [0.0], powers])
    marks = marks[(marks >= low - knee) & (marks <= high + knee)]
    marks = marks[:: max(1, -(-len(marks) // _MOST_MARKS))]
    getattr(axes, f"set_{side}ticks")(marks, [f"{mark:g}" for mark in marks])
    getattr(axes, f"{side}axis").set_minor_locator(NullLocator())


def _one(surface: Surface) -> Any:
    """Of several classes the one on which the pair acts most."""
    if surface.effect.ndim == 2:
        return surface.effect
    return surface.effect[:, :, int(np.square(surface.effect).sum(axis=(0, 1)).argmax())]


def _plain(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=9, color=_INK, loc="left", pad=4)
    axes.tick_params(labelsize=7, colors=_SOFT, length=2)
    axes.locator_params(axis="x", nbins=5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_LINE)


def _cycled(count: int) -> list[str]:
    return [_COLOURS[k % len(_COLOURS)] for k in range(count)]
