"""Scores in words: what was measured, the range, and what a model that knows nothing of the columns would reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["MEASURES", "held_out", "score_lines", "score_table"]

MEASURES = {
    "r_squared": "R²",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "log_loss": "log loss",
    "mean_absolute_error": "mean absolute error",
}
_BASES = {"accuracy": "base_rate", "log_loss": "base_log_loss", "mean_absolute_error": "base_mean_absolute_error"}
_WITHOUT = {
    "accuracy": "the largest class alone",
    "log_loss": "the shares of the classes alone",
    "mean_absolute_error": "the centre alone",
}


def held_out(context: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All held-out scores of a model file; earlier versions stored one."""
    one = context.get("held_out_score")
    return list(context.get("held_out_scores") or ([one] if one else []))


def score_table(scores: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Rows (name, value, range, what it stands beside), from estimates as JSON.

    >>> score_table([{"quantity": "accuracy", "value": 0.9, "low": 0.88, "high": 0.92},
    ...              {"quantity": "base_rate", "value": 0.8, "low": 0.79, "high": 0.81}])
    [('accuracy', '0.900', '0.880 to 0.920', '0.800 from the largest class alone')]
    """
    known = {str(one["quantity"]): one for one in scores}
    rows = []
    for quantity, name in MEASURES.items():
        if quantity in known:
            one, base = known[quantity], known.get(_BASES.get(quantity, ""))
            beside = f"{_short(base['value'])} from {_WITHOUT[quantity]}" if base else ""
            if quantity == "auc":
                beside = "0.5 by guessing"
            rows.append((name, _short(one["value"]), f"{_short(one['low'])} to {_short(one['high'])}", beside))
    return rows


def score_lines(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same for a terminal."""
    return [
        f"{name} {value} ({span})" + (f"; {beside}" if beside else "")
        for name, value, span, beside in score_table(scores)
    ]


def _short(value: float) -> str:
    """Three decimals for shares, four figures for what has a unit."""
    if 1e4 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"
