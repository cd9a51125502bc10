"""How every picture of the papers looks: one hand, nothing smaller than eight points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["SCHEMES", "SMALLEST", "new_canvas", "style"]

_INK = "#3b4252"
_COLOURS = ("#2a7f9e", "#c8553d", "#5aa469", "#d99a2b", "#8a6bb1", "#20242c", "#8a93a6", "#b3402a")
SMALLEST = 8.0  # points
# Initialisations as their authors' names are written.
SCHEMES = {"lecun": "LeCun", "he": "He", "xavier": "Xavier", "ntk": "NTK"}


def style() -> dict[str, Any]:
    """Return matplotlib's settings; legends, ticks and notes have the smallest size."""
    from cycler import cycler

    dark = ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(dark, _INK),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SMALLEST),
        "font.size": 9,
        "axes.labelsize": 9,
        "axes.titlesize": 10,
        "figure.titlesize": 11,
        "axes.prop_cycle": cycler(color=_COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "lines.linewidth": 1.3,
        "errorbar.capsize": 2,
    }


def new_canvas(draw: Any, *, settles_nothing: bool = False, path: Path | None = None) -> Any:
    """Return a matplotlib figure drawn in the house's style, saved if there is a path; a smoke run says so."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(style()):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        if settles_nothing:
            figure.text(0.5, 0.5, "smoke run: settles nothing", size=26, color="#8a93a6", alpha=0.35, rotation=25,
                        ha="center", va="center", zorder=10)  # fmt: skip
        if path is not None:
            # Inside the style: colours by number are looked up when the picture is made.
            figure.savefig(path, dpi=120)
    return figure
