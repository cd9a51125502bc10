"""S3, Figure 2: KL of the worst neighbour against depth and width, after 20 and 50 epochs under three readings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gratis.planning.bounds.initialization import Scheme
from gratis_papers.house_style import SCHEMES
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s3_divergence import FULL, LONG, Size, an_epoch, curves, describe, notes, select
from gratis_papers.s3_initialization import COLOURS
from gratis_papers.s3_runs import Row, load_records

__all__ = ["divergence_against_shape"]

STEP_SIZE = 0.01
EVALUATED = (Scheme.LECUN, Scheme.XAVIER, Scheme.HE)  # those of the paper's Figure 2: NTK is not among them
_LOW = (Scheme.LECUN, Scheme.XAVIER)


@dataclass(frozen=True, slots=True)
class Block:
    """Shapes at one size, with the readings of an epoch that its steps allow: depth, and width, → runs."""

    size: Size
    readings: tuple[int, ...]
    depths: dict[int, int]
    widths: dict[int, int]


# A step of width 1024 costs 16 of width 256; the runs of FULL's and LONG's own shape are those of Figure 1.
_BLOCKS = {
    "smoke": (Block(Size("digits", 40, 16, 3, 500, 1), (1, 10), {2: 1, 3: 1}, {8: 1, 16: 1, 32: 1}),),
    "full": (
        Block(FULL, (1, 10), {2: 3, 4: 3, 6: 3, 8: 3, 10: FULL.runs}, {64: 3, 128: 3, 256: FULL.runs, 512: 2, 1024: 1}),
        Block(LONG, (100,), {2: 2, 4: 2, 6: 2, 8: 2, 10: LONG.runs}, {64: 2, 128: LONG.runs, 256: 2}),
    ),
}


def _shapes(block: Block) -> list[dict[str, Any]]:
    shapes: list[dict[str, Any]] = [{"depth": depth, "runs": runs} for depth, runs in block.depths.items()]
    return shapes + [
        {"width": width, "runs": runs} for width, runs in block.widths.items() if width != block.size.width
    ]


def divergence_against_shape(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 2: depth at one width, and width at one depth, after 20 and 50 epochs."""
    seed = int(rng.integers(2**31))
    blocks = _BLOCKS[scale]
    rows: list[Row] = []
    lost: list[str] = []
    for block in blocks:
        shapes = _shapes(block)
        settings = [
            {"scheme": str(scheme), "step_size": STEP_SIZE, **shape} for shape in shapes for scheme in EVALUATED
        ]
        found = curves(block.size, settings, seed)
        marks = {epochs * reading for epochs in (20, 50) for reading in block.readings}
        rows += [row for row in found if row["step"] in marks]
        lost += _lost(found, shapes)
    name = load_records(blocks[0].size.source, blocks[0].size.records)[1]
    described = {
        "data": name,
        "step_size": STEP_SIZE,
        "sizes": [
            describe(block.size, name)
            | {"steps_an_epoch": list(block.readings)}
            | {f"runs_by_{what}": {str(k): runs for k, runs in part.items()}
               for what, part in (("depth", block.depths), ("width", block.widths))}
            for block in blocks
        ],
    }  # fmt: skip
    return PaperResult(
        described,
        rows,
        judge_shapes(described, rows),
        lambda figure: draw_shapes(figure, described, rows),
        (*notes(blocks[0].size), *lost),
    )


def judge_shapes(settings: Row, rows: list[Row]) -> list[Claim]:
    """The paper's statements under every reading."""
    return [claim for size in settings["sizes"] for reading in size["steps_an_epoch"]
            for claim in _claims(rows, size, reading)]  # fmt: skip


def _lost(rows: list[Row], shapes: list[dict[str, Any]]) -> list[str]:
    ended = {(row["scheme"], row["width"], row["depth"]): row["diverged_at"] for row in rows if row["diverged_at"]}
    per_scheme = {scheme: [key for key in ended if key[0] == scheme] for scheme in EVALUATED}
    return [
        f"{SCHEMES[scheme]} diverges at step size {STEP_SIZE} in {len(keys)} of {len(shapes)} shapes, first in step "
        f"{min(ended[key] for key in keys)}: points after that do not exist"
        for scheme, keys in per_scheme.items()
        if keys
    ]


def _values(rows: list[Row], size: Row, scheme: Scheme, panel: str, step: int) -> dict[int, Row]:
    fixed = {"width": size["width"]} if panel == "depth" else {"depth": size["depth"]}
    chosen = select(rows, scheme=str(scheme), step=step, records=size["records"], **fixed)
    return dict(sorted((row[panel], row) for row in chosen))


def _claims(rows: list[Row], size: Row, reading: int) -> list[Claim]:
    def each(panel: str, epochs: int, schemes: Sequence[Scheme], number: Callable[[list[float]], float]) -> list[float]:
        """The number for every initialization that trained in all shapes."""
        found = []
        for scheme in schemes:
            values = _values(rows, size, scheme, panel, epochs * reading)
            # Runs that diverged leave gaps: such an initialization is not judged.
            if len(values) == len(size[f"runs_by_{panel}"]):
                found.append(number([row["kl"] for row in values.values()]))
        return found

    def ends(values: list[float]) -> float:
        return math.log(values[-1] / values[0])

    rises = each("depth", 20, _LOW, lambda values: max(values) / values[0])
    falls = each("depth", 20, _LOW, lambda values: values[-1] / max(values))
    he, late = each("depth", 20, (Scheme.HE,), ends), each("depth", 50, EVALUATED, ends)
    wide = each("width", 50, EVALUATED, ends)
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


def draw_shapes(figure: Any, settings: Row, rows: list[Row]) -> None:
    """One line a reading: depth after 20 and 50 epochs, width after 50; bars from the least run to the largest."""
    lines = [(size, reading) for size in settings["sizes"] for reading in size["steps_an_epoch"]]
    figure.set_size_inches(11, 3.2 * len(lines) + 0.5)
    panels = figure.subplots(len(lines), 3, squeeze=False)
    for line, (size, reading) in zip(panels, lines, strict=True):
        for axes, (panel, epochs) in zip(line, (("depth", 20), ("depth", 50), ("width", 50)), strict=True):
            for scheme in EVALUATED:
                values = _values(rows, size, scheme, panel, epochs * reading)
                x, chosen = list(values), list(values.values())
                kl, least, most = (np.array([row[key] for row in chosen]) for key in ("kl", "least", "most"))
                # Both ends are positive: no bar leaves the axis.
                bars = np.abs([kl - np.minimum(least, kl), np.maximum(most, kl) - kl]) if x else None
                axes.errorbar(x, kl, bars, fmt="o-", ms=3, color=COLOURS[scheme], label=SCHEMES[scheme])
            at = f"width {size['width']}" if panel == "depth" else f"depth {size['depth']}"
            axes.set(yscale="log", xlabel=panel)
            axes.set_title(
                f"{epochs} epochs of {reading} step{'s' if reading > 1 else ''}, {at}, n = {size['records']}"
            )
            if panel == "width":
                shown = sorted(map(int, size["runs_by_width"]))
                axes.set_xscale("log")
                axes.set_xticks(shown, [str(width) for width in shown])
                axes.set_xticks([], minor=True)
                axes.set_xlim(shown[0] / 1.2, shown[-1] * 1.2)
        line[0].set_ylabel("KL of the worst neighbour")
    panels[0][0].legend()
