"""The report of a saved model: everything on the page comes from the model file, so it can always be made again."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from gratis.records.certificates import Certificate
from gratis.records.plans import cost_words
from gratis.report.figures import cost_figure, tradeoff_figure
from gratis.report.page import ReportContent, privacy_sentences, render_page
from gratis.report.scores import MEASURES, held_out, score_table

__all__ = ["learnt_parts", "privacy_parts", "report_content", "write_report"]

_MOST_LEVELS = 8


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


def write_report(content: ReportContent, path: Path) -> list[Path]:
    """Write the page, and every figure beside it as PNG; return what was written."""
    written = []
    for index, (_, png) in enumerate([*content.figures, *content.cost_figures, *content.learnt], start=1):
        written.append(path.with_name(f"{path.stem}-figure-{index}.png"))
        written[-1].write_bytes(png)
    path.write_text(render_page(content), encoding="utf-8")
    return [path, *written]


def report_content(estimator: Any, context: dict[str, Any], model: Path | None = None) -> ReportContent:
    """Collect what the page shows from a fitted estimator and the context that `gratis fit` saved with it.

    With the `model` file itself, the record of the release names its hash.
    """
    certificate: Certificate = estimator.certificate_
    table = context.get("table") or {}
    names = _names(estimator, table)
    task, target = table.get("task", "model"), table.get("target", {}).get("name", "the target")
    cost = next((point for point in _curve(context) if point["epsilon"] == certificate.budget.epsilon), None)
    records = f"{context.get('rows', '?')} {context.get('unit', 'rows')}"
    return ReportContent(
        title=f"Private {task} of {target}",
        subtitle=f"{context.get('model', type(estimator).__name__)}, trained on {records} and "
        f"{context.get('columns', estimator.n_features_in_)} columns by Gratis",
        certificate=certificate,
        numbers=_numbers(certificate, context, cost),
        scores=_scores(context),
        **learnt_parts(estimator, names, table),
        columns=_columns(context),
        reasons=_reasons(context),
        cost_figures=_cost_figures(context, cost),
        command=str(context.get("command") or ""),
        python=str(context.get("python") or ""),
        audit={"words": "", **context["audit"]} if context.get("audit") else None,
        **privacy_parts(certificate, context, model),
    )


def privacy_parts(certificate: Certificate, context: dict[str, Any], model: Path | None = None) -> dict[str, Any]:
    """The privacy officer's part of a page: sentences, the record of the release, the attacker's best curve."""
    from gratis.accounting.attackers import attacker_bounds

    proved = _proved(certificate)
    bounds = attacker_bounds(proved)
    curve = _tradeoff_curve(proved)
    return {
        "privacy": privacy_sentences(
            certificate, accuracy=bounds.accuracy, detection=bounds.detection, false_alarms=bounds.false_alarms
        ),
        "record": _record(certificate, context, model),
        "figures": [("No attack, however clever, reaches the shaded region.", tradeoff_figure(curve))],
    }


def _proved(certificate: Certificate) -> Any:
    """What the certificate states; where that is a few points of a curve, the curve that its events prove."""
    from gratis.accounting import account
    from gratis.records.guarantees import GDPWithFailureGuarantee

    if certificate.guarantee.get("mu") is None:
        proved = account(certificate.event)
        if isinstance(proved, GDPWithFailureGuarantee):
            return proved
    return certificate.guarantee


def _tradeoff_curve(proved: Any) -> list[tuple[float, float]]:
    """The ROC that no attacker can beat."""
    from gratis.accounting.attackers import attacker_bounds

    alarms = [0.0, *np.linspace(0.0, 1.0, 101)[1:-1].tolist(), 1.0]
    inside = [attacker_bounds(proved, false_alarms=a).detection for a in alarms[1:-1]]
    # Without any false alarm what remains is the probability that everything is told.
    return list(zip(alarms, [getattr(proved, "failure", 0.0), *inside, 1.0], strict=True))


def _record(certificate: Certificate, context: dict[str, Any], model: Path | None) -> list[tuple[str, str]]:
    entry: Any = certificate.ledger_entry or {}
    left = context.get("ledger") or {}
    record = [
        ("date", str(context.get("date") or "not recorded")),
        ("file of the rows", str(context.get("file") or "not recorded")),
        ("model file", _hash(model)),
        ("released arrays", f"SHA-256 {certificate.released}" if certificate.released else "not recorded"),
        ("unit of privacy", certificate.unit),
        ("neighbouring relation", str(certificate.neighbouring)),
        ("budget of this release", certificate.budget.describe()),
        ("ledger entry", f"{entry['id']} of {entry['name']!r}" if entry else "no ledger was asked"),
    ]
    if left.get("mu") is not None:
        remaining, more = left.get("remaining_mu"), left.get("left_epsilon")
        rest = "not known in μ" if remaining is None else f"μ {remaining:.4g} of {left['mu']:.4g}"
        if more is not None:
            rest = f"one more release of ε = {more:.3g} at δ = {left['delta']:g}; {rest}"
        record.append(("left in the ledger afterwards", rest))
    elif not entry:
        record.append(("left afterwards", "nobody counts: another release from the same rows adds to this one"))
    record.append(
        (
            "hash of the rows' file",
            "withheld: it is a function of private rows, and whoever guesses the file could check the guess",
        )
    )
    return record


def _hash(model: Path | None) -> str:
    if model is None:
        return "none: the model was not saved"
    if not model.is_file():
        return "not written yet"
    with model.open("rb") as file:
        return f"{model.name}, SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _numbers(certificate: Certificate, context: dict[str, Any], cost: dict[str, Any] | None) -> list[tuple[str, str]]:
    numbers = []
    if cost is not None and cost.get("unit"):
        words = cost_words(cost["value"], cost["low"], cost["high"], cost["unit"])
        numbers.append(("predicted cost of privacy", words))
    guarantee = certificate.guarantee
    numbers.append(("epsilon, proved", f"{float(guarantee['epsilon']):.4g}"))
    numbers.append(("delta", f"{certificate.budget.delta:g}"))
    # Files of earlier versions hold a prediction from sizes instead of a score that was paid for.
    expected = context.get("expected_score") or context.get("predicted_quality")
    if expected:
        measure = MEASURES.get(expected["quantity"], "quality")
        numbers.append((f"{measure}, expected on fresh rows", f"{expected['low']:.2f} to {expected['high']:.2f}"))
    for name, value, span, beside in score_table(held_out(context))[:3]:
        base = f"; {beside}" if name == "accuracy" and beside else ""
        numbers.append((f"{name} on held-out rows ({span}){base}", value))
    return numbers


def _scores(context: dict[str, Any]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []

    def add(score: str, value: str, span: str, beside: str, origin: str) -> None:
        rows.append({"score": score, "value": value, "range": span, "without a model": beside, "from": origin})

    expected = context.get("expected_score") or context.get("predicted_quality")
    if expected:
        measure = MEASURES.get(expected["quantity"], "quality")
        span = f"{expected['low']:.3f} to {expected['high']:.3f}"
        add(f"{measure}, expected on fresh rows", f"{expected['value']:.3f}", span, "", expected["source"])
    scores = held_out(context)
    for name, value, span, beside in score_table(scores):
        add(
            name,
            value,
            span,
            beside,
            f"private release on {scores[0]['samples']} held-out {context.get('unit', 'rows')}",
        )
    if not scores:
        add("on held-out rows", "absent", "", "", context.get("no_score") or "no rows were held out (see --hold-out)")
    add("on the training rows", "absent", "", "", "never computed: it would be a release nobody paid for")
    return rows


def _names(estimator: Any, table: dict[str, Any]) -> list[str]:
    """Names of the encoded columns."""
    if table.get("schema"):
        from gratis.rows.encoding import TableSchema

        return list(TableSchema.from_json(table["schema"]).names)
    return list(
        map(str, getattr(estimator, "feature_names_in_", [f"x{i + 1}" for i in range(estimator.n_features_in_)]))
    )


def _columns(context: dict[str, Any]) -> list[dict[str, object]]:
    """Column → how it is read → encoded columns; names and levels are public. Files of before hold the schema alone."""
    if context.get("readings"):
        return [
            {"column": one["name"], "holds": one["holds"], "read as": one["read_as"], "becomes": _few(one["becomes"])}
            for one in context["readings"]
        ]
    table = context.get("table") or {}
    if not table.get("schema"):
        return []
    from gratis.rows.encoding import TableSchema

    rows: list[dict[str, object]] = []
    for column in TableSchema.from_json(table["schema"]).columns:
        stored = column.to_json()
        said = stored if isinstance(stored, dict) else {"kind": stored}
        how = str(said.get("kind"))
        if said.get("levels"):
            how += f", {len(said['levels'])} levels: {_few(said['levels'])}"
        how += "".join(f", {name} {value}" for name, value in said.items() if name not in ("kind", "levels"))
        rows.append({"column": column.name, "read as": how, "becomes": _few(column.names) or "left out"})
    return rows


def _few(words: Any) -> str:
    listed = [str(word) for word in words]
    more = len(listed) - _MOST_LEVELS
    return ", ".join(listed[:_MOST_LEVELS]) + (f" and {more} more" if more > 0 else "")


def _reasons(context: dict[str, Any]) -> list[str]:
    """The plan's sentences, each once."""
    return list(dict.fromkeys([*context.get("words", ()), *context.get("reasons", ())]))


def _curve(context: dict[str, Any]) -> list[dict[str, Any]]:
    return list(context.get("curve") or ())


def _cost_figures(context: dict[str, Any], chosen: dict[str, Any] | None) -> list[tuple[str, bytes]]:
    if chosen is None:
        return []
    points = [(p["epsilon"], p["value"], p["low"], p["high"]) for p in _curve(context)]
    unit = chosen.get("unit")
    what = f"lost to privacy: {unit}" if unit else "predicted quality"
    picture = cost_figure(points, (chosen["epsilon"], chosen["value"]), quantity=what)
    return [("Predicted before the data was touched, from public sizes and the budget alone.", picture)]
