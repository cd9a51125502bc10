"""What a model learnt, for its report: coefficients with intervals where they were paid for, curves with bands."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

__all__ = ["learnt_parts"]

_MOST_COEFFICIENTS, _MOST_TERMS = 100, 12


def learnt_parts(estimator: Any, names: list[str], table: dict[str, Any]) -> dict[str, Any]:
    """Coefficients with intervals where they were paid for; curves with bands; nothing of random features."""
    if hasattr(estimator, "shapes_"):
        return {
            "learnt": _shapes(estimator, names, table),
            "learnt_words": [
                "What the most important columns add to the prediction (of classes: to the scores), with bands of two "
                "deviations, all on one scale; of a category, what having a level adds. All of it is made of what was "
                "released: no row is in it."
            ],
        }  # fmt: skip
    inference = getattr(estimator, "inference_", None)
    if inference is not None:
        if inference.withheld is not None:
            return {"learnt_words": [f"Intervals are withheld: {inference.withheld}."]}
        return {
            "coefficients": _intervals(inference, names),
            "learnt_words": ["Standard errors hold sampling and privacy."],
        }
    if not hasattr(estimator, "intercept_") or hasattr(estimator, "n_features"):
        return {"learnt_words": ["Its parameters belong to hidden features and have no meaning of their own."]}
    slopes = np.atleast_2d(estimator.coef_)
    classes = table.get("target", {}).get("levels") or [str(label) for label in getattr(estimator, "classes_", ())]
    heads = ["coefficient"] if len(slopes) == 1 else [f"class {name}" for name in classes[: len(slopes)]]
    levels = np.atleast_1d(estimator.intercept_)
    rows = [{"column": "(intercept)", **{h: f"{v:.4g}" for h, v in zip(heads, levels, strict=True)}}]
    shown = names[:_MOST_COEFFICIENTS]
    rows += [
        {"column": name, **{h: f"{v:.4g}" for h, v in zip(heads, slopes[:, j], strict=True)}}
        for j, name in enumerate(shown)
    ]
    words = [
        "In the units of the table. No intervals were paid for (inference=True in Python), so small ones may be noise."
    ]
    if len(names) > len(shown):
        words.append(f"The first {len(shown)} of {len(names)} columns.")
    return {"coefficients": rows, "learnt_words": words}


def _intervals(inference: Any, names: list[str]) -> list[dict[str, object]]:
    given = ["(intercept)", *names]
    if hasattr(inference, "table"):
        made = inference.table()
        spelt = given if len(given) == len(made.lines) else [line[0] for line in made.lines]
        heads = ["column", *made.headings[1:]]
        return [dict(zip(heads, [name, *line[1:]], strict=True)) for name, line in zip(spelt, made.lines, strict=True)]
    ends, columns = inference.conf_int(), (inference.params, inference.bse, inference.privacy_share)
    return [
        {"column": name, "coefficient": f"{value:.4g}", "std err": f"{error:.3g}",
         "95 % interval": f"{low:.4g} to {high:.4g}", "privacy's share": f"{share:.2f}"}
        for name, value, error, share, (low, high) in zip(given, *columns, ends, strict=True)
    ]  # fmt: skip


def _shapes(estimator: Any, names: list[str], table: dict[str, Any]) -> list[tuple[str, bytes]]:
    from gratis.estimators.shape_pictures import draw_terms
    from gratis.estimators.shapes import shapes_of, with_categories

    classes = None
    if hasattr(estimator, "classes_"):
        classes = table.get("target", {}).get("levels") or [str(label) for label in estimator.classes_]
    found = []
    shapes = with_categories(shapes_of(estimator.model_, names), estimator.model_, _categories(table))
    for name, figure in draw_terms(shapes, _MOST_TERMS, classes=classes):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", facecolor="white")
        found.append((name, buffer.getvalue()))
    return found


def _categories(table: dict[str, Any]) -> dict[str, dict[int, str]]:
    """The places of every category's columns of zeros and ones, with their levels; hashed ones have no names."""
    if not table.get("schema"):
        return {}
    from gratis.rows.columns import Kind
    from gratis.rows.encoding import TableSchema

    found, place = {}, 0
    for column in TableSchema.from_json(table["schema"]).columns:
        if column.kind is Kind.CATEGORICAL and column.levels is not None:
            levels = [level for level in column.levels if level != column.reference]
            found[column.name] = {place + i: level for i, level in enumerate(levels)}
        place += len(column.names)
    return found
