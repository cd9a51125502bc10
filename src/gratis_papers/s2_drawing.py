"""How the figures of S2 look: one colour a schedule, logarithmic axes with plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["COLOURS", "INK", "NAMES", "cell_edges", "plain_logarithms"]

INK = "#3b4252"
NAMES = {
    "poly:0": "α = 0 (output perturbation)",
    "poly:0.5": "α = ½ (constant noise)",
    "poly:1": "α = 1",
    "poly:2": "α = 2",
    "harmonic": "harmonic",
    "free": "free-form (ours)",
    "free-clip": "free-form with clip (ours)",
}
COLOURS = {
    "poly:0": "#b3402a",
    "poly:0.5": "#d99a2b",
    "poly:1": "#5aa469",
    "poly:2": "#8a6bb1",
    "harmonic": "#2a7f9e",
    "free": "#20242c",
    "free-clip": "#8a93a6",
}


def cell_edges(centres: ArrayLike) -> NDArray[np.float64]:
    """Return the edges of cells around centres that are evenly spaced in their logarithm: none is cut at the rim.

    >>> cell_edges([1.0, 4.0, 16.0]).tolist()
    [0.5, 2.0, 8.0, 32.0]
    """
    logarithms = np.log2(np.asarray(centres, dtype=np.float64))
    half = np.diff(logarithms).mean() / 2
    return np.asarray(2.0 ** np.append(logarithms - half, logarithms[-1] + half))


def plain_logarithms(axes: Any, which: str = "xy", *, dense: bool = False) -> None:
    """Put logarithmic axes with ticks 1, 2, 5 (dense) or 1 of each decade, written as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for letter in which:
        axis = getattr(axes, f"{letter}axis")
        getattr(axes, f"set_{letter}scale")("log")
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if dense else (1.0,), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
