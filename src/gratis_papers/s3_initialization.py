"""S3, Table 1: B, R and the excess risk of four initializations, as printed, in general and by sampling (Lemma C.3)."""

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
    lazy_training_distance,
    published_gradient_norm_constant,
)
from gratis_papers.house_style import SCHEMES
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


# Shapes d, m, L, o at which Lemma C.3 meets sampled weights; and that of S3's figures, at which the table has numbers.
_SHAPES = [(20, 40, 2, 3), (12, 60, 3, 1), (30, 50, 4, 10)]
_PAPER_SHAPE, _PAPER_RECORDS = (3072, 1024, 10), 10_000


def table_one(scale: str, rng: np.random.Generator) -> PaperResult:
    """Table 1: B, R and the excess risk as printed, against the general formulas, and B against sampled weights."""
    samples = 8000 if scale == "smoke" else 40_000
    sampled: list[dict[str, Any]] = []
    for shape in _SHAPES:
        widths = layer_widths(*shape)
        all_variances = [layer_variances(scheme, widths) for scheme in Scheme]
        norms = sampled_squared_jacobian(widths, all_variances, samples, rng)
        for scheme, variances, (mean, error) in zip(Scheme, all_variances, norms, strict=True):
            sampled.append(
                {
                    "part": "Lemma C.3",
                    "scheme": str(scheme),
                    "shape": list(shape),
                    "table": published_gradient_norm_constant(scheme, *shape),
                    "general": gradient_norm_constant(widths, variances),
                    "sampled": mean,
                    "error": error,
                }
            )
    columns = [_numbers(scheme) for scheme in Scheme]
    return PaperResult(
        {"samples": samples, "shapes": _SHAPES, "paper_shape": _PAPER_SHAPE, "paper_records": _PAPER_RECORDS},
        [*sampled, *columns],
        _claims(sampled),
        lambda figure: _draw(figure, sampled, columns),
        ("the table's R and excess risk leave constants and logarithms out (Õ): they are compared up to a factor",),
    )


def published_lazy_distance(scheme: Scheme, n: int, d: int, m: int, L: int) -> float:
    """R of Table 1 for one output, constants and logarithms left out as printed."""
    if scheme is Scheme.NTK:
        return n / m / ((L - 1) / 2 + 1 / m)
    if scheme is Scheme.XAVIER:
        return n / d * (1 + d / m) * (1 + 1 / m) / (L - 1 + (d + 1) / (2 * m))
    return n / m / (L - 1 + d / m)


def published_excess_risk(scheme: Scheme, d: int, L: int, kl_budget: float) -> float:
    """√ of Table 1's last column; its 1/n² is left out."""
    gain = {Scheme.HE: 1.0, Scheme.NTK: float(d)}.get(scheme, 2.0**-L)
    return math.sqrt(gain / kl_budget)


def _numbers(scheme: Scheme) -> dict[str, Any]:
    """The columns at the paper's shape, KL budget 1: as printed, and by the general formulas (7), (9) and (10)."""
    d, m, L = _PAPER_SHAPE
    single, n = layer_widths(d, m, L, 1), _PAPER_RECORDS
    variances = layer_variances(scheme, single)
    constant, distance = gradient_norm_constant(single, variances), lazy_training_distance(single, variances, n)
    return {
        "part": "columns",
        "scheme": str(scheme),
        "B_two_outputs": published_gradient_norm_constant(scheme, d, m, L, 2),
        "R": published_lazy_distance(scheme, n, d, m, L),
        "R_general": distance,
        "excess": published_excess_risk(scheme, d, L, 1.0),
        "excess_general": math.sqrt(constant * distance / n),
    }


def _claims(sampled: list[dict[str, Any]]) -> list[Claim]:
    closed = max(abs(row["table"] / row["general"] - 1) for row in sampled)
    drawn = max(abs(row["sampled"] / row["general"] - 1) for row in sampled)
    distances, risks, identity, widening = [], [], [], []
    n = _PAPER_RECORDS
    for d, m, L in itertools.product((20, 3072), (64, 1024), range(2, 21)):
        widths = layer_widths(d, m, L, 1)
        for scheme in Scheme:
            variances = layer_variances(scheme, widths)
            B, R = gradient_norm_constant(widths, variances), lazy_training_distance(widths, variances, n)
            gain = d * variances[-1] * math.prod(b * w for b, w in zip(variances[:-1], widths[1:-1], strict=True))
            identity.append(abs(B * R / n / (max(1.0, gain) / 2 ** (L - 1)) - 1))
            distances.append(abs(math.log(published_lazy_distance(scheme, n, d, m, L) / R)))
            risks.append(abs(math.log(published_excess_risk(scheme, d, L, 1.0) / math.sqrt(B * R / n))))
            wider = published_gradient_norm_constant(scheme, d, 2 * m, L, 2)
            widening.append(wider / published_gradient_norm_constant(scheme, d, m, L, 2))
    most = [math.exp(max(values)) for values in (distances, risks)]
    return [
        Claim("Table 1's closed forms of B equal the general formula (relative difference below 1e-12)",
              closed < 1e-12, closed, exact=True, words="Gradient norm constant B (7)"),
        Claim("Lemma C.3 within 2 % of Monte-Carlo for all four at three shapes", drawn < 0.02, drawn,
              words="Gradient norm constant B (7)"),
        Claim("Table 1's R is (9) up to a factor of 4 (depth 2 to 20, d = 20 and 3072, width 64 and 1024)",
              most[0] <= 4 * (1 + 1e-9), most[0], exact=True, words="Approximate lazy training distance R (9)"),
        Claim("(10) equals (11): BR/n = max{1, dβ_L∏β_l m_l}/2^(L−1) (relative difference below 1e-9)",
              max(identity) < 1e-9, max(identity), exact=True, words="Excess Empirical risk under ε-KL privacy"),
        Claim("Table 1's excess risk is √(BR/(εn)) up to a factor of √8", most[1] <= math.sqrt(8) * (1 + 1e-9), most[1],
              exact=True, words="Excess Empirical risk under ε-KL privacy (Corollary 6.4)"),
        Claim("twice the width never lowers B (least ratio)", min(widening) >= 1, min(widening), exact=True,
              words="Width always worsen privacy, under all the considered initialization schemes"),
    ]  # fmt: skip


_PRINTED = {
    Scheme.LECUN: ("$1/m_{l-1}$", r"$om(L-1+d/m)\,/\,2^{L-1}$", r"$\frac{n}{m}\cdot\frac{1}{L-1+d/m}$",
                   r"$\sqrt{1/(2^L\varepsilon)}$"),
    Scheme.HE: ("$2/m_{l-1}$", r"$om(L-1+d/m)$", r"$\frac{n}{m}\cdot\frac{1}{L-1+d/m}$", r"$\sqrt{1/\varepsilon}$"),
    Scheme.NTK: ("$2/m_l$, last $1/o$", r"$dm((L-1)/2+o/m)$", r"$\frac{n}{m}\cdot\frac{1}{(L-1)/2+1/m}$",
                 r"$\sqrt{d/\varepsilon}$"),
    Scheme.XAVIER: (r"$2/(m_{l-1}+m_l)$", r"$\frac{od\,(L-1+(d+o)/2m)}{2^{L-3}(1+d/m)(1+o/m)}$",
                    r"$\frac{n}{d}\cdot\frac{(1+d/m)(1+1/m)}{L-1+(d+o)/2m}$", r"$\sqrt{1/(2^L\varepsilon)}$"),
}  # fmt: skip


def _draw(figure: Any, sampled: list[dict[str, Any]], columns: list[dict[str, Any]]) -> None:
    """Table 1 as a table: every printed form with its number at the paper's shape below it."""
    figure.set_size_inches(11, 4.6)
    axes = figure.subplots()
    axes.axis("off")
    d, m, L = _PAPER_SHAPE
    header = ["", "variance of layer l", "B as printed\n(two outputs)", "B sampled / Lemma C.3\n(± 2 standard errors)",
              "R as printed\n[by (9)]", "excess risk as printed, ε = 1\n[√(BR/(εn))]"]  # fmt: skip
    cells = []
    for row in columns:
        scheme = Scheme(row["scheme"])
        variance, constant, distance, risk = _PRINTED[scheme]
        ratios = [
            f"{r['sampled'] / r['general']:.4f} ± {2 * r['error'] / r['general']:.4f}"
            for r in sampled
            if r["scheme"] == scheme
        ]
        cells.append(
            [
                SCHEMES[scheme],
                variance,
                f"{constant}\n{row['B_two_outputs']:.4g}",
                "\n".join(ratios),
                f"{distance}\n{row['R']:.3g}  [{row['R_general']:.3g}]",
                f"{risk}\n{row['excess']:.3g}  [{row['excess_general']:.3g}]",
            ]
        )
    table = axes.table(cells, colLabels=header, loc="center", cellLoc="center",
                       colWidths=[0.07, 0.13, 0.22, 0.19, 0.19, 0.20])  # fmt: skip
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (line, column), cell in table.get_celld().items():
        cell.set_height(0.13 if line == 0 else 0.19)
        cell.set_edgecolor("#d4d8e0")
        if line == 0:
            cell.set_facecolor("#eef1f5")
        elif column == 0:
            cell.get_text().set(color=COLOURS[columns[line - 1]["scheme"]], weight="bold")
    shapes = "; ".join(f"d={a}, m={b}, L={c}, o={e}" for a, b, c, e in _SHAPES)
    axes.set_title(f"Table 1, with numbers at d = {d}, m = {m}, L = {L}, n = {_PAPER_RECORDS:,}\nsampled at {shapes}")
