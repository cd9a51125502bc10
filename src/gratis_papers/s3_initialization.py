"""S3, Table 1: the constant B of four initializations, in closed form and by sampling initial weights (Lemma C.3)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.planning.bounds.initialization import (
    Scheme,
    gradient_norm_constant,
    layer_variances,
    layer_widths,
    published_gradient_norm_constant,
)
from gratis_papers.registry import Claim, PaperResult

__all__ = ["COLOURS", "sampled_squared_jacobian", "table_one"]

COLOURS = {"lecun": "#2a7f9e", "xavier": "#5aa469", "he": "#c8553d", "ntk": "#7a5195"}


def sampled_squared_jacobian(
    widths: Sequence[int], all_variances: Sequence[Sequence[float]], samples: int, rng: np.random.Generator
) -> list[tuple[float, float]]:
    """Monte-Carlo mean of ‖∂f/∂W‖_F² over initial weights at ‖x‖² = d, with its standard error, for each β.

    Forward and backward by hand on weights of variance 1/fan-in. ReLU networks are homogeneous in every layer, so one
    sample serves all variances: ‖∂f/∂W_l‖² carries the factor ∏_{i≠l} β_i·m_{i−1}.
    """
    depth = len(widths) - 1
    norms = np.empty((samples, depth))
    block = max(1, int(2e6 // max(a * b for a, b in itertools.pairwise(widths))))
    for start in range(0, samples, block):
        count = min(block, samples - start)
        weights = [
            rng.standard_normal((count, after, before), dtype=np.float32) / np.float32(math.sqrt(before))
            for before, after in itertools.pairwise(widths)
        ]
        h: NDArray[Any] = np.ones((count, widths[0], 1), dtype=np.float32)
        lengths, masks = [], []
        for i, w in enumerate(weights):
            lengths.append(np.square(h, dtype=np.float64).sum(axis=(1, 2)))
            h = w @ h
            if i < depth - 1:
                masks.append(h[:, :, 0] > 0)
                h = np.maximum(h, 0)
        # ∂f_j/∂W_l = (row j of W_L D_{L−1} … W_{l+1} D_l) ⊗ h_{l−1}: only the norms of both factors are needed.
        back = np.broadcast_to(np.eye(widths[-1], dtype=np.float32), (count, widths[-1], widths[-1]))
        for i in range(depth - 1, -1, -1):
            norms[start : start + count, i] = lengths[i] * np.square(back, dtype=np.float64).sum(axis=(1, 2))
            if i:
                back = (back @ weights[i]) * masks[i - 1][:, None, :]
    found = []
    for variances in all_variances:
        gains = np.array(variances) * np.array(widths[:-1])
        values = norms @ (np.prod(gains) / gains)
        found.append((float(values.mean()), float(values.std(ddof=1) / math.sqrt(samples))))
    return found


def table_one(scale: str, rng: np.random.Generator) -> PaperResult:
    """Table 1: B in closed form, by the general formula, and by sampling the initial weights."""
    samples = 8000 if scale == "smoke" else 40_000
    shapes = [(20, 40, 2, 3), (12, 60, 3, 1), (30, 50, 4, 10)]
    rows: list[dict[str, Any]] = []
    for shape in shapes:
        widths = layer_widths(*shape)
        all_variances = [layer_variances(scheme, widths) for scheme in Scheme]
        sampled_norms = sampled_squared_jacobian(widths, all_variances, samples, rng)
        for scheme, variances, (mean, error) in zip(Scheme, all_variances, sampled_norms, strict=True):
            rows.append(
                {
                    "d": shape[0],
                    "width": shape[1],
                    "depth": shape[2],
                    "outputs": shape[3],
                    "scheme": str(scheme),
                    "table": published_gradient_norm_constant(scheme, *shape),
                    "general": gradient_norm_constant(widths, variances),
                    "sampled": mean,
                    "error": error,
                }
            )
    closed = max(abs(row["table"] / row["general"] - 1) for row in rows)
    sampled = max(abs(row["sampled"] / row["general"] - 1) for row in rows)
    claims = [
        Claim("Table 1's closed forms equal the general formula (relative difference below 1e-12)", closed < 1e-12,
              closed, exact=True),
        Claim("Lemma C.3 within 2 % of Monte-Carlo for all four at three shapes", sampled < 0.02, sampled),
    ]  # fmt: skip

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        depths = np.arange(2, 21)
        for scheme in Scheme:
            values = [published_gradient_norm_constant(scheme, 3072, 1024, int(L), 2) for L in depths]
            left.plot(depths, values, color=COLOURS[scheme], label=str(scheme))
        left.set(yscale="log", xlabel="depth", ylabel="B", title="d=3072, width 1024, 2 outputs")
        left.legend(frameon=False, fontsize=8)
        for i, row in enumerate(rows):
            ratio, error = row["sampled"] / row["general"], row["error"] / row["general"]
            right.errorbar(i, ratio, 2 * error, fmt="o", ms=4, color=COLOURS[row["scheme"]])
        right.axhspan(0.98, 1.02, color="#8a93a6", alpha=0.2)
        right.set(xlabel="shape and initialization", ylabel="sampled / Lemma C.3", title="bars: 2 standard errors")

    return PaperResult({"samples": samples, "shapes": shapes}, rows, claims, draw)
