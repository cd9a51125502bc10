"""What a saved model learnt, for the page: shapes, coefficients, scores, certificate; and answers to typed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gratis.accounting import verify_certificate
from gratis.estimators.model_file import SavedModel, load_model
from gratis.records.errors import GratisError
from gratis.records.record import plain
from gratis.studio.questions import attacker

__all__ = ["described_model", "prediction"]

_MOST_CURVES, _MOST_SURFACES, _MOST_COEFFICIENTS, _MOST_INPUTS = 24, 6, 100, 400


def described_model(path: Path) -> dict[str, Any]:
    """Everything that the page shows of a model; all of it was released or is public."""
    saved = load_model(path)
    estimator, context = saved.estimator, saved.context
    certificate = estimator.certificate_
    stored: Any = context.get("table") or {}
    mu = certificate.guarantee.get("mu")
    return plain(
        {
            "title": f"{context.get('model') or type(estimator).__name__} of {_target(stored)}",
            "estimator": type(estimator).__name__,
            "rows": context.get("rows"),
            "columns": estimator.n_features_in_,
            "task": stored.get("task"),
            "classes": _classes(saved),
            "certificate": {
                "epsilon": certificate.guarantee.get("epsilon"),
                "delta": certificate.budget.delta,
                "mu": mu,
                "neighbouring": str(certificate.neighbouring),
                "unit": certificate.unit,
                "problems": verify_certificate(certificate),
                "ledger": (certificate.ledger_entry or {}).get("name"),
            },
            "attacker": attacker(mu, str(certificate.neighbouring), delta=certificate.budget.delta or 1e-6)
            if isinstance(mu, float) and mu > 0
            else None,
            "scores": _scores(context),
            "audit": context.get("audit"),
            "words": [*_texts(context.get("words")), *_texts(context.get("reasons"))],
            "inputs": _inputs(saved),
            **_learnt(saved),
        }
    )


def prediction(path: Path, values: object) -> dict[str, Any]:
    """Predict one row of typed values, read as the model reads a table. An empty value counts as missing."""
    saved = load_model(path)
    if not isinstance(values, Mapping) or not all(isinstance(v, str) and len(v) <= 1000 for v in values.values()):
        raise GratisError("the page sent no values")
    X = _row(saved, values)
    estimator, classes = saved.estimator, _classes(saved)
    found: dict[str, Any] = {}
    if classes is None:
        found["prediction"] = float(estimator.predict(X)[0])
    else:
        shares = estimator.predict_proba(X)[0]
        found["prediction"] = classes[int(np.argmax(shares))]
        found["probabilities"] = dict(zip(classes, shares.tolist(), strict=True))
    if hasattr(estimator, "explain"):
        parts = {name: np.atleast_1d(value).tolist() for name, value in estimator.explain(X).items()}
        names = _names(saved)
        terms = [term.name for term in _shapes(saved, names)]
        found["parts"] = dict(zip(["constant", *terms, *list(parts)[1 + len(terms) :]], parts.values(), strict=True))
    return found


def _row(saved: SavedModel, values: Mapping[str, str]) -> Any:
    table = saved.table()
    if table is None:
        try:
            given = [values.get(name, "").strip() for name in _names(saved)]
            return np.array([[float(text) if text else np.nan for text in given]])
        except ValueError:
            pass
        raise GratisError("every value must be a number")
    import pyarrow as pa

    from gratis.rows.encoding import Kind
    from gratis.rows.tables import unreadable

    schema = table[0]
    cells = {}
    for column in schema.used:
        text = values.get(column.name, "").strip()
        cells[column.name] = pa.array([text or None], pa.string())
        if column.kind is Kind.NUMERIC and unreadable(cells[column.name]):
            raise GratisError(f"{column.name!r} must be a number")
    return schema.matrix(pa.RecordBatch.from_arrays(list(cells.values()), list(cells)))


def _target(stored: Mapping[str, Any]) -> str:
    return str((stored.get("target") or {}).get("name", "y"))


def _texts(found: Any) -> list[str]:
    return [str(text) for text in found] if isinstance(found, list) else []


def _classes(saved: SavedModel) -> list[str] | None:
    table = saved.table()
    if table is not None and table[1] is not None:
        return list(table[1])
    found = getattr(saved.estimator, "classes_", None)
    return None if found is None else [str(label) for label in found]


def _names(saved: SavedModel) -> list[str]:
    """Names of the matrix' columns."""
    table = saved.table()
    if table is not None:
        return list(table[0].names)
    estimator = saved.estimator
    count = estimator.n_features_in_
    return [str(name) for name in getattr(estimator, "feature_names_in_", (f"column {i}" for i in range(count)))]


def _inputs(saved: SavedModel) -> list[dict[str, Any]]:
    """The fields of the form: the columns of the table, or of the matrix."""
    table = saved.table()
    if table is None:
        return [{"name": name, "kind": "numeric", "levels": None} for name in _names(saved)[:_MOST_INPUTS]]
    return [
        {"name": column.name, "kind": str(column.kind), "levels": list(column.levels) if column.levels else None}
        for column in table[0].used[:_MOST_INPUTS]
    ]


def _scores(context: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = {"r_squared": "R²", "accuracy": "accuracy"}
    origins = {
        "expected_score": "expected on fresh rows; paid for in the fit",
        "held_out_score": "private release on held-out rows",
    }
    found = []
    for key, origin in origins.items():
        score: Any = context.get(key)
        if isinstance(score, Mapping) and "value" in score:
            measure = names.get(score.get("quantity", ""), str(score.get("quantity", "score")))
            span = [score.get(part, score["value"]) for part in ("value", "low", "high")]
            found.append({"name": measure, "value": span[0], "low": span[1], "high": span[2], "origin": origin})
    return found


def _shapes(saved: SavedModel, names: Sequence[str]) -> Any:
    from gratis.estimators.shapes import shapes_of

    return shapes_of(saved.estimator.model_, names)


def _learnt(saved: SavedModel) -> dict[str, Any]:
    estimator, names = saved.estimator, _names(saved)
    if hasattr(estimator, "model_"):
        shapes = _shapes(saved, names)
        curves = sorted(shapes.curves, key=lambda curve: -curve.importance)[:_MOST_CURVES]
        surfaces = sorted(shapes.surfaces, key=lambda surface: -surface.importance)[:_MOST_SURFACES]
        return {
            "curves": [
                {
                    "name": curve.name, "discrete": bool(curve.discrete), "categorical": bool(curve.categorical),
                    "importance": curve.importance, "grid": _short(curve.grid), "effect": _short(curve.effect),
                    "low": _short(curve.low), "high": _short(curve.high), "knee": curve.knee,
                }
                for curve in curves
            ],
            "surfaces": [
                {
                    "name": surface.name, "names": list(surface.names), "importance": surface.importance,
                    "grids": [_short(grid) for grid in surface.grids], "effect": _short(_strongest(surface.effect)),
                }
                for surface in surfaces
            ],
        }  # fmt: skip
    if hasattr(estimator, "fit_"):
        return {"coefficients": _coefficients(estimator, names)}
    return {}


def _coefficients(estimator: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Coefficients in the units of the table, those first that matter most for a released deviation of their column."""
    slopes = np.atleast_2d(estimator.coef_)
    scale = np.broadcast_to(estimator.fit_.features.scale, slopes.shape[1:])
    order = np.argsort(-np.abs(slopes * scale).max(axis=0))[:_MOST_COEFFICIENTS]
    said = getattr(estimator, "inference_", None)
    spans = None if said is None or said.withheld is not None else said.conf_int()[1:]
    return [
        {
            "name": names[j], "values": _short(slopes[:, j]), "effects": _short((slopes * scale)[:, j]),
            "interval": None if spans is None else _short(spans[j]),
        }
        for j in order.tolist()
    ]  # fmt: skip


def _strongest(effect: Any) -> Any:
    """Of several classes the one on which a pair acts most, as the pictures of the package show it."""
    return effect if effect.ndim == 2 else effect[:, :, int(np.square(effect).sum(axis=(0, 1)).argmax())]


def _short(values: Any) -> Any:
    """Five digits are more than a picture shows."""
    array = np.asarray(values, dtype=np.float64)
    flat = [float(f"{value:.5g}") if np.isfinite(value) else 0.0 for value in array.ravel()]
    return np.array(flat).reshape(array.shape).tolist()
