"""S3, Figure 1 at the paper's own size: 10,000 + 2,000 records, width 1024, depth 10, one step an epoch, 50 epochs.

The other readings of an epoch need ten and a hundred times as many steps, and six runs six times as many: those are
drawn with fewer records in `s3_divergence`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gratis.planning.bounds.initialization import Scheme
from gratis_papers.registry import PaperResult
from gratis_papers.s3_divergence import Size, claims_of, curve, curves, describe, select, statements
from gratis_papers.s3_initialization import COLOURS
from gratis_papers.s3_runs import load_records

__all__ = ["divergence_at_the_papers_size"]

# A step takes about 14 s of one core. Without NTK, for want of time.
SCHEMES = (Scheme.LECUN, Scheme.HE, Scheme.XAVIER)
SIZES = {"smoke": Size("digits", 100, 32, 3, 50, 1), "full": Size("cifar", 10_000, 1024, 10, 50, 1)}
STEP_SIZE = 0.01


def divergence_at_the_papers_size(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 1, one run: KL of the worst neighbour in the first 50 steps, and what the paper says of 50 epochs."""
    size, seed = SIZES["smoke" if scale == "smoke" else "full"], int(rng.integers(2**31))
    rows = curves(size, [{"scheme": str(scheme), "step_size": STEP_SIZE} for scheme in SCHEMES], seed)
    verdicts = statements(rows, STEP_SIZE, 1)
    name = load_records(size.source, size.records)[1]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for scheme in SCHEMES:
            curve(axes, select(rows, scheme=str(scheme)), COLOURS[scheme], str(scheme))
        axes.axvline(20, color="#8a93a6", lw=0.8, ls=":", zorder=0)
        axes.set(xscale="log", yscale="log", xlabel="steps (epochs, all records in every step)")
        axes.set_ylabel("KL of the worst neighbour")
        axes.set_title(f"{size.records:,} + {size.records // 5:,} records, width {size.width}, depth {size.depth}")
        axes.legend(frameon=False, fontsize=8)

    return PaperResult(
        describe(size, name) | {"step_size": STEP_SIZE, "steps_an_epoch": 1},
        rows,
        claims_of(verdicts),
        draw,
        (
            f"{size.records} + {size.records // 5} records, width {size.width}, one run; the paper makes six",
            "every step takes all records: an epoch is one step",
            "KL is not (ε, δ)-DP; the estimate is computed from gradients without noise and is a diagnostic",
            "NTK was not run, for want of time: what is said of He and NTK is shown for He alone",
        ),
    )
