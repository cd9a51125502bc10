"""S3, Figure 1 at the paper's own size: 10,000 + 2,000 records, width 1024, depth 10, one step an epoch, 50 epochs.

The other readings of an epoch need ten and a hundred times as many steps, and six runs six times as many: those are
drawn with fewer records in `s3_divergence`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gratis.planning.bounds.initialization import Scheme
from gratis_papers.house_style import SCHEMES
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s3_divergence import Size, claims_of, curve, curves, describe, select, statements
from gratis_papers.s3_initialization import COLOURS
from gratis_papers.s3_runs import Row, load_records

__all__ = ["divergence_at_the_papers_size"]

# A step takes about 16 s of one core.
SIZES = {"smoke": Size("digits", 100, 32, 3, 50, 1), "full": Size("cifar", 10_000, 1024, 10, 50, 1)}
STEP_SIZE = 0.01


def divergence_at_the_papers_size(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 1, one run: KL of the worst neighbour in the first 50 steps, and what the paper says of 50 epochs."""
    size, seed = SIZES["smoke" if scale == "smoke" else "full"], int(rng.integers(2**31))
    rows = curves(size, [{"scheme": str(scheme), "step_size": STEP_SIZE} for scheme in Scheme], seed)
    name = load_records(size.source, size.records)[1]

    settings = describe(size, name) | {"step_size": STEP_SIZE, "steps_an_epoch": 1}
    return PaperResult(
        settings,
        rows,
        judge_own_size(settings, rows),
        lambda figure: draw_own_size(figure, settings, rows),
        (
            f"{size.records} + {size.records // 5} records, width {size.width}, one run; the paper makes six",
            "every step takes all records: an epoch is one step",
            "KL is not (ε, δ)-DP; the estimate is computed from gradients without noise and is a diagnostic",
        ),
    )


def judge_own_size(_: dict[str, Any], rows: list[Row]) -> list[Claim]:
    """What the paper says of 50 epochs, read as steps."""
    return claims_of(statements(rows, STEP_SIZE, 1))


def draw_own_size(figure: Any, settings: dict[str, Any], rows: list[Row]) -> None:
    """KL against steps."""
    axes = figure.subplots()
    for scheme in Scheme:
        if chosen := select(rows, scheme=str(scheme)):
            curve(axes, chosen, COLOURS[scheme], SCHEMES[scheme])
    axes.axvline(20, color="#8a93a6", lw=0.8, ls=":", zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="steps (epochs, all records in every step)")
    axes.set_ylabel("KL of the worst neighbour")
    of = f"{settings['records']:,} + {settings['addable_records']:,} records"
    axes.set_title(f"{of}, width {settings['width']}, depth {settings['depth']}, one run")
    axes.legend()
