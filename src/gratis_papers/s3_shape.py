"""S3, Figure 2: KL of the worst neighbour against depth and width, after 20 and 50 epochs under three readings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gratis.planning.bounds.initialization import Scheme
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s3_divergence import FULL, READINGS, Size, an_epoch, curves, describe, notes, select
from gratis_papers.s3_initialization import COLOURS
from gratis_papers.s3_runs import Row, load_records

__all__ = ["divergence_against_shape"]

STEP_SIZE = 0.01
SMOKE = Size("digits", 40, 16, 3, 500, 1)
# Depth, then width → (steps, runs): as far as was affordable; a step of width 1024 costs 80 of width 128. The runs of
# FULL's shape are those of Figure 1.
_DEPTHS = {
    "smoke": {2: (500, 1), 3: (500, 1)},
    "full": {2: (5000, 2), 4: (5000, 2), 6: (5000, 2), 8: (5000, 2), 10: (FULL.last, FULL.runs)},
}
_WIDTHS = {
    "smoke": {8: (500, 1), 16: (500, 1), 32: (50, 1)},
    "full": {64: (500, 2), 128: (FULL.last, FULL.runs), 256: (500, 2), 512: (500, 1), 1024: (50, 1)},
}


def divergence_against_shape(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 2: depth at one width, and width at one depth; the rows hold every mark in between as well."""
    seed = int(rng.integers(2**31))
    size = SMOKE if scale == "smoke" else FULL
    readings = [reading for reading in READINGS if 50 * reading <= size.last]
    depths, widths = _DEPTHS[scale], _WIDTHS[scale]
    shapes: list[dict[str, Any]] = [{"depth": L, "last": last, "runs": runs} for L, (last, runs) in depths.items()]
    shapes += [
        {"width": width, "last": last, "runs": runs} for width, (last, runs) in widths.items() if width != size.width
    ]
    settings = [{"scheme": str(scheme), "step_size": STEP_SIZE, **shape} for shape in shapes for scheme in Scheme]
    marks = sorted({epochs * reading for epochs in (20, 50) for reading in readings})
    found = curves(size, settings, seed)
    rows = [row for row in found if row["step"] in marks]
    name = load_records(size.source, size.records)[1]
    described = describe(size, name) | {
        "step_size": STEP_SIZE,
        "depths": {str(depth): {"steps": last, "runs": runs} for depth, (last, runs) in depths.items()},
        "widths": {str(width): {"steps": last, "runs": runs} for width, (last, runs) in widths.items()},
        "steps_an_epoch": readings,
    }
    claims = [claim for reading in readings for claim in _claims(rows, size, reading)]
    return PaperResult(
        described,
        rows,
        claims,
        lambda figure: _draw(figure, rows, size, readings),
        (*notes(size), *_lost(found, shapes)),
    )


def _lost(rows: list[Row], shapes: list[dict[str, Any]]) -> list[str]:
    ended = {(row["scheme"], row["width"], row["depth"]): row["diverged_at"] for row in rows if row["diverged_at"]}
    per_scheme = {scheme: [key for key in ended if key[0] == scheme] for scheme in map(str, Scheme)}
    return [
        f"{scheme} diverges at step size {STEP_SIZE} in {len(keys)} of {len(shapes)} shapes, first in step "
        f"{min(ended[key] for key in keys)}: points after that do not exist"
        for scheme, keys in per_scheme.items()
        if keys
    ]


def _values(rows: list[Row], size: Size, scheme: Scheme, panel: str, step: int) -> dict[int, Row]:
    fixed = {"width": size.width} if panel == "depth" else {"depth": size.depth}
    chosen = select(rows, scheme=str(scheme), step=step, **fixed)
    return dict(sorted((row[panel], row) for row in chosen))


def _claims(rows: list[Row], size: Size, reading: int) -> list[Claim]:
    def each(panel: str, epochs: int, schemes: Sequence[Scheme], number: Callable[[list[float]], float]) -> list[float]:
        """The number for every initialization with at least two values, and all depths."""
        found = []
        for scheme in schemes:
            values = _values(rows, size, scheme, panel, epochs * reading)
            # Runs that diverged leave gaps; a depth that was not run that far is missing for all.
            whole = panel == "width" or len(values) == len(
                {r["depth"] for r in rows if r["width"] == size.width and r["step"] == epochs * reading}
            )
            if whole and len(values) > 1:
                found.append(number([row["kl"] for row in values.values()]))
        return found

    def ends(values: list[float]) -> float:
        return math.log(values[-1] / values[0])

    low = (Scheme.LECUN, Scheme.XAVIER)
    rises = each("depth", 20, low, lambda values: max(values) / values[0])
    falls = each("depth", 20, low, lambda values: values[-1] / max(values))
    he, late = each("depth", 20, (Scheme.HE,), ends), each("depth", 50, tuple(Scheme), ends)
    wide = each("width", 50, tuple(Scheme), ends)
    begin = f"{an_epoch(reading)}:"
    first = "first worsens with depth (≤ 8) and then improves with depth (≥ 8) under Xavier and LeCun initializations"
    found = [
        (f"{begin} at 20 epochs LeCun and Xavier first worsen with depth (largest over first, above 1.1; least)",
         rises, min(rises, default=0) > 1.1, min, first),
        (f"{begin} at 20 epochs LeCun and Xavier improve beyond some depth (last over largest, below .9; largest)",
         falls, max(falls, default=1) < 0.9, max, first),
        (f"{begin} at 20 epochs He worsens with depth (ln KL of last over first)", he, min(he, default=0) > 0, min,
         "at the beginning of training (20 epochs), the KL privacy loss worsens with depth under He initialization"),
        (f"{begin} at 50 epochs all that train worsen with depth (ln KL of last over first; least)", late,
         min(late, default=0) > 0, min, "At later phases of the training (50 epochs), KL privacy worsens (increases) "
         "with depth under all evaluated initializations"),
        (f"{begin} at 50 epochs all that train worsen with width (ln KL of last over first; least)", wide,
         min(wide, default=0) > 0, min, "Under increasing width, the KL privacy loss always grows under all evaluated "
         "initializations"),
    ]  # fmt: skip
    return [Claim(text, holds, worst(values), words=words) for text, values, holds, worst, words in found if values]


def _draw(figure: Any, rows: list[Row], size: Size, readings: Sequence[int]) -> None:
    figure.set_size_inches(10.5, 3 * len(readings) + 0.5)
    panels = figure.subplots(len(readings), 3, squeeze=False)
    for line, reading in zip(panels, readings, strict=True):
        for axes, (panel, epochs) in zip(line, (("depth", 20), ("depth", 50), ("width", 50)), strict=True):
            for scheme in Scheme:
                values = _values(rows, size, scheme, panel, epochs * reading)
                x, chosen = list(values), list(values.values())
                kl, least, most = (np.array([row[key] for row in chosen]) for key in ("kl", "least", "most"))
                # Bars end at the least and the largest run: both are positive, no bar leaves the axis.
                bars = np.abs([kl - np.minimum(least, kl), np.maximum(most, kl) - kl]) if x else None
                axes.errorbar(x, kl, bars, fmt="o-", ms=3, capsize=2, color=COLOURS[scheme], label=str(scheme))
            at = f"width {size.width}" if panel == "depth" else f"depth {size.depth}"
            axes.set(yscale="log", xlabel=panel)
            of = f"{epochs} epochs of {reading} step{'s' if reading > 1 else ''}"
            axes.set_title(f"{of}, {at}", fontsize=9)
            if panel == "width":
                shown = sorted({row["width"] for row in rows if row["depth"] == size.depth})
                axes.set_xscale("log")
                axes.set_xticks(shown, [str(width) for width in shown])
                axes.set_xticks([], minor=True)
                axes.set_xlim(shown[0] / 1.2, shown[-1] * 1.2)
                reached = {row["width"] for row in select(rows, depth=size.depth, step=epochs * reading)}
                if missing := [str(width) for width in shown if width not in reached]:
                    axes.set_xlabel(f"width ({', '.join(missing)}: not run so far)")
        line[0].set_ylabel("KL of the worst neighbour")
    panels[0][0].legend(frameon=False, fontsize=8)
