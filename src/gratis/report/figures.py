"""Figures of results, each as PNG bytes: the page embeds them, the caller may save them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["cost_figure", "tradeoff_figure"]

_INK, _ACCENT, _SECOND, _GRID = "#3b4252", "#2a7f9e", "#c8553d", "#8a93a6"


def _axes(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # no global state, no display

    figure = Figure(figsize=(4.4, 3.1), dpi=190, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    axes.set_xlabel(x, color=_INK)
    axes.set_ylabel(y, color=_INK)
    axes.tick_params(colors=_INK)
    axes.grid(True, color=_GRID, alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white")
    return buffer.getvalue()


def tradeoff_figure(tradeoff: Sequence[tuple[float, float]]) -> bytes:
    """Draw the ROC that no attacker can beat, as (false alarms, detections)."""
    figure, axes = _axes("What an attacker can reach at most", "false alarms", "records recognised")
    bound = np.array(tradeoff)
    axes.fill_between(bound[:, 0], bound[:, 1], 1.0, color=_ACCENT, alpha=0.12, label="ruled out by the proof")
    axes.plot(bound[:, 0], bound[:, 1], color=_ACCENT, linewidth=2)
    axes.plot([0, 1], [0, 1], color=_GRID, linewidth=1, linestyle="--", label="guessing")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    return _png(figure)


def cost_figure(
    points: Sequence[tuple[float, float, float, float]], chosen: tuple[float, float], *, quantity: str
) -> bytes:
    """Draw predicted quality against ε: (epsilon, value, low, high), and the chosen point."""
    figure, axes = _axes("What privacy costs (predicted)", "epsilon", quantity)
    data = np.array(points)
    axes.fill_between(data[:, 0], data[:, 2], data[:, 3], color=_ACCENT, alpha=0.15, label="range of assumed problems")
    axes.plot(data[:, 0], data[:, 1], color=_ACCENT, linewidth=2, marker="o", markersize=3)
    axes.plot(*chosen, color=_SECOND, marker="o", markersize=8, linestyle="none", label="this run")
    axes.set_xscale("log")
    axes.set_xticks(data[:, 0], [f"{value:g}" for value in data[:, 0]])
    axes.minorticks_off()
    axes.legend(loc="best", frameon=False, fontsize=8)
    return _png(figure)
