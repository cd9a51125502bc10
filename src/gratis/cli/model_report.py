"""The report of a saved model: everything on the page comes from the model file, so it can always be made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gratis.report.figures import cost_figure, tradeoff_figure
from gratis.report.page import ReportContent, render_page

__all__ = ["report_content", "tradeoff_curve", "write_report"]

_MEASURES = {"r_squared": "R²", "accuracy": "accuracy"}


def write_report(content: ReportContent, path: Path) -> list[Path]:
    """Write the page, and every figure beside it as PNG; return what was written."""
    written = []
    for index, (_, png) in enumerate(content.figures, start=1):
        written.append(path.with_name(f"{path.stem}-figure-{index}.png"))
        written[-1].write_bytes(png)
    path.write_text(render_page(content), encoding="utf-8")
    return [path, *written]


def tradeoff_curve(mu: float) -> list[tuple[float, float]]:
    """The ROC that no attacker can beat."""
    from scipy.special import ndtr, ndtri

    alarms = np.linspace(0.0, 1.0, 201)
    return list(zip(alarms.tolist(), (1 - ndtr(ndtri(1 - alarms) - mu)).tolist(), strict=True))


def report_content(estimator: Any, context: dict[str, Any]) -> ReportContent:
    """Collect what the page shows from a fitted estimator and the context that `gratis fit` saved with it."""
    certificate = estimator.certificate_
    # Files of earlier versions hold a prediction from sizes instead of a score that was paid for.
    expected, score = context.get("expected_score") or context.get("predicted_quality"), context.get("held_out_score")
    measure = _MEASURES.get((expected or score or {}).get("quantity", ""), "quality")
    task = context.get("table", {}).get("task", "model")
    target = context.get("table", {}).get("target", {}).get("name", "the target")
    numbers = [
        ("epsilon, proved", f"{certificate.guarantee['epsilon']:.4g}"),
        ("delta", f"{certificate.budget.delta:g}"),
        ("neighbouring relation", str(certificate.neighbouring)),
        *([("Gaussian-DP mu", f"{certificate.mu:.4g}")] if certificate.mu is not None else []),
    ]
    if expected:
        numbers.append((f"{measure}, expected", f"{expected['low']:.2f} to {expected['high']:.2f}"))
    if score:
        numbers.append((f"{measure}, held-out rows", f"{score['value']:.3f}"))
    figures = []
    if certificate.mu is not None:
        picture = tradeoff_figure(tradeoff_curve(certificate.mu))
        figures.append(("No attack, however clever, reaches the shaded region.", picture))
    if context.get("curve"):
        points = [(p["epsilon"], p["value"], p["low"], p["high"]) for p in context["curve"]]
        chosen = next(p for p in points if p[0] == certificate.budget.epsilon)
        unit = context["curve"][0].get("unit")
        what = f"predicted loss of {unit} to privacy" if unit else f"predicted {measure}"
        picture = cost_figure(points, chosen[:2], quantity=what)
        figures.append(("Predicted before the data was touched, from public sizes and the budget alone.", picture))
    return ReportContent(
        title=f"Private {task} of {target}",
        subtitle=f"{context.get('model', type(estimator).__name__)}, trained on {context.get('rows', '?')} rows and "
        f"{context.get('columns', estimator.n_features_in_)} columns by Gratis",
        certificate=certificate,
        numbers=numbers,
        reasons=[*context.get("words", ()), *context.get("reasons", ())],
        scores=_scores(expected, score, measure, context.get("no_score")),
        audit=context.get("audit"),
        figures=figures,
    )


def _scores(expected: Any, score: Any, measure: str, no_score: str | None) -> list[tuple[str, str, str]]:
    rows = []
    if expected:
        span = f"{expected['value']:.3f} ({expected['low']:.3f} to {expected['high']:.3f})"
        rows.append((f"{measure}, expected on fresh rows", span, expected["source"]))
    if score:
        span = f"{score['value']:.3f} ({score['low']:.3f} to {score['high']:.3f})"
        rows.append((f"{measure}, measured", span, f"private release on {score['samples']} held-out rows"))
    else:
        rows.append((f"{measure}, measured", "absent", no_score or "no rows were held out (see --hold-out)"))
    rows.append(("score on the training rows", "absent", "never computed: it would be a release nobody paid for"))
    return rows
