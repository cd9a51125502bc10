"""`gratis fit`: from a file to a certified private model and a report."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import typer

from gratis.cli.output import JSON_OPTION, emit, table
from gratis.specs.errors import BudgetExceededError, GratisError

__all__ = ["fit"]

_MARK = "unfinished.json"
_AUDIT_RUNS = 1000
_FACTORS = {"random-features": (0.5, 1.0, 2.0)}  # planning these takes longer
_ALL_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def fit(
    file: Path = typer.Argument(..., help="A .parquet, .arrow, .feather, .csv or .csv.gz file; one row a record."),
    target: str = typer.Option(..., help="The column to predict."),
    epsilon: float = typer.Option(..., help="Budget."),
    delta: float = typer.Option(..., help="Budget; below one over the number of rows."),
    model: str = typer.Option("auto", help="auto, linear, logistic, additive, random-features or mlp."),
    task: str = typer.Option("auto", help="auto (from the target's type), regression or classification."),
    classes: str | None = typer.Option(None, help="Public list of classes, separated by commas."),
    schema: Path | None = typer.Option(None, help="JSON file that says how columns are read; see `gratis schema`."),
    ignore: str = typer.Option("", help="Columns to leave out, separated by commas."),
    hash_buckets: int | None = typer.Option(None, "--hash", help="Hash every text column into so many buckets."),
    neighbouring: str = typer.Option("replace-one", help="replace-one or zero-out."),
    features: str | None = typer.Option(None, help="For random-features: tanh, relu, erf or scattering (images)."),
    n_features: int | None = typer.Option(None, help="For random-features: how many."),
    hold_out: float = typer.Option(0.0, help="Share of the rows kept for a private score, at most 0.5."),
    ledger: Path | None = typer.Option(None, help="Ledger file that is asked first."),
    budget: str | None = typer.Option(None, help="Name of the data set's budget in the ledger."),
    output: Path = typer.Option(Path("gratis-fit"), help="Folder for model.gratis, certificate.json, report.html."),
    force: bool = typer.Option(False, "--force", help="Overwrite a model that is there already."),
    memory: float = typer.Option(4.0, help="Gigabytes; a larger fit is done in one pass over the file."),
    audit: bool = typer.Option(True, help="For linear and logistic: attack the descent on worst-case neighbours."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Stop after the plan: nothing is spent or written."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Plan, ask the ledger, train with a guarantee, and write model, certificate and report."""
    from rich.console import Console

    from gratis.accounting import verify_certificate
    from gratis.estimators.model_file import save_model
    from gratis.estimators.table_fit import plan_table_fit
    from gratis.specs.budget import Budget
    from gratis.specs.neighbouring import Neighbouring

    console = Console(stderr=True, quiet=as_json)
    asked = Budget(epsilon=epsilon, delta=delta, neighbouring=Neighbouring.parse(neighbouring))
    given = {"features": features, "n_features": n_features}
    options = {key: value for key, value in given.items() if value is not None}
    if options and model != "random-features":
        raise GratisError("--features and --n-features belong to --model random-features")
    with console.status("planning from public facts"):
        job = plan_table_fit(
            file, target, asked, model=model, task=task, classes=_listed(classes), schema=schema,
            ignore=_listed(ignore) or (), hash_buckets=hash_buckets, held_out=hold_out, memory_bytes=1e9 * memory,
            options=options,
        )  # fmt: skip
    plan = _plan(job)
    for sentence in plan["words"]:
        console.print(sentence, highlight=False, soft_wrap=True)
    if job.choice:
        console.print(_candidates(job.choice), highlight=False, soft_wrap=True)
    if dry_run:
        emit({"plan": plan, "spent": False}, as_json=as_json, text="dry run: nothing was read for training or spent")
        return
    _check_ledger(ledger, budget, console)
    _prepare(output, force, console)
    with console.status("checking that every cell can be read"):
        job.check()
    mark = output / _MARK
    earlier = mark.read_bytes() if mark.exists() else None
    mark.write_text(json.dumps({"budget": asked.describe(), "file": file.name, "ledger": budget, "time": time.ctime()}))
    try:
        with console.status("training"):
            done = job.run(ledger=None if ledger is None else str(ledger), dataset=budget, progress=not as_json)
    except BudgetExceededError:  # the ledger refused to reserve: nothing was spent
        _restore(mark, earlier)
        raise
    context, certificate = done.context, done.estimator.certificate_
    problems = verify_certificate(certificate)
    with console.status("predicting other budgets"):
        context["curve"] = _curve(job)
    if audit:
        with console.status("attacking the training on worst-case neighbours"):
            context["audit"] = _audited(done.estimator)
    staging = output / f".partial-{os.getpid()}"
    staging.mkdir()
    try:
        from gratis.cli.model_report import report_content, write_report

        save_model(staging / "model.gratis", done.estimator, context)
        certificate.write(staging / "certificate.json")
        if done.score is not None:
            done.score.certificate.write(staging / "evaluation-certificate.json")
        write_report(report_content(done.estimator, context), staging / "report.html")
        for path in sorted(staging.iterdir()):
            os.replace(path, output / path.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    mark.unlink(missing_ok=True)
    emit(
        {
            "plan": plan,
            "spent": True,
            "model": str(output / "model.gratis"),
            "certificate": str(output / "certificate.json"),
            "report": str(output / "report.html"),
            "guarantee": certificate.guarantee | {"neighbouring": str(certificate.neighbouring)},
            "certificate_verifies": not problems,
            "held_out_score": context["held_out_score"],
            "audit": context.get("audit"),
        },
        as_json=as_json,
        text=_last_words(output, certificate, context, job.held_out, problems),
    )
    if problems or (context.get("audit") or {}).get("alarm"):
        raise typer.Exit(3)


def _listed(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None


def _plan(job: Any) -> dict[str, Any]:
    predicted, words = job.prediction, job.words()
    if predicted is not None:
        measure = {"r_squared": "R²", "accuracy": "accuracy"}[predicted.quantity]
        words.append(
            f"Predicted {measure}: {predicted.value:.2f}, {predicted.low:.2f} to {predicted.high:.2f} over the "
            f"synthetic problems of this size ({predicted.source})."
        )
    return {
        "model": job.model,
        "task": job.task,
        "rows": job.training.n_rows,
        "columns": len(job.schema.names),
        "streamed": job.streamed,
        "predicted_quality": None if predicted is None else predicted.to_json(),
        "words": words,
    }


def _candidates(choice: Any) -> str:
    rows = [
        [name, *(f"{found.details['by_truth'][truth]:.3f}" for truth in ("straight", "curved"))]
        for name, found in choice.predictions.items()
    ]
    return table(["model", "straight truth", "curved truth"], rows)


def _check_ledger(ledger: Path | None, budget: str | None, console: Any) -> None:
    from gratis.ledger import Ledger

    if (ledger is None) != (budget is None):
        raise GratisError("give both --ledger (a file) and --budget (a name in it), or neither")
    if ledger is None or budget is None:
        return
    lost = Ledger.open(ledger).status(budget).never_committed
    if lost:
        console.print(
            f"{len(lost)} earlier run(s) reserved from {budget!r} and never finished (killed or failed): what they "
            f"reserved stays spent; see `gratis ledger show`.",
            highlight=False,
            soft_wrap=True,
        )


def _prepare(output: Path, force: bool, console: Any) -> None:
    """Find out before anything is spent that the results can be written."""
    output.mkdir(parents=True, exist_ok=True)
    probe = output / f".probe-{os.getpid()}"
    probe.write_bytes(b"")
    probe.unlink()
    if (output / "model.gratis").exists() and not force:
        raise GratisError(f"there is a model in {str(output)!r} already; choose another --output, or pass --force")
    mark = output / _MARK
    if mark.exists():
        try:
            last = json.loads(mark.read_text())
            words = f"of {last['time']} on {last['file']!r} ({last['budget']})"
        except (ValueError, KeyError, TypeError):
            words = "in this folder"
        console.print(
            f"The last run {words} was stopped before it ended and left no model: if it had begun to train, its budget "
            "is spent; count it, or keep a ledger, which does.",
            highlight=False,
            soft_wrap=True,
        )
    for left in output.glob(".partial-*"):
        shutil.rmtree(left, ignore_errors=True)


def _restore(mark: Path, earlier: bytes | None) -> None:
    """Leave the mark of a run that was stopped before this one, and none of this one."""
    if earlier is None:
        mark.unlink(missing_ok=True)
    else:
        mark.write_bytes(earlier)


def _curve(job: Any) -> list[dict[str, float]]:
    from gratis.estimators.model_choice import predict_quality
    from gratis.specs.budget import Budget

    if job.prediction is None:
        return []
    points = []
    rows, columns = job.training.n_rows, len(job.schema.names)
    for factor in _FACTORS.get(job.model, _ALL_FACTORS):
        epsilon = job.budget.epsilon * factor
        asked = Budget(epsilon=epsilon, delta=job.budget.delta, neighbouring=job.budget.neighbouring)
        found = predict_quality(job.model, rows, columns, asked, n_classes=job.n_classes, options=job.options)
        points.append({"epsilon": epsilon, "value": found.value, "low": found.low, "high": found.high})
    return points


def _audited(estimator: Any) -> dict[str, Any] | None:
    from gratis.cli.worst_case import audit_full_batch
    from gratis.specs.events import Composition, FullBatchDescent

    event = estimator.plan_.event
    leaves = event.leaves() if isinstance(event, Composition) else (event,)
    # Features and networks have trainers of their own, and a pass its own audit: `gratis audit` runs those.
    if not hasattr(estimator, "fit_") or not any(isinstance(leaf, FullBatchDescent) for leaf in leaves):
        return None
    found = audit_full_batch(estimator.plan_, runs=_AUDIT_RUNS, delta=estimator.delta)
    return {
        **found.to_json(),
        "words": f"{found.mu.samples} trainings of the descent stage on two worst-case neighbours, the best test known "
        "for them, and exact binomial confidence bounds.",
    }


def _last_words(output: Path, certificate: Any, context: dict[str, Any], held_out: float, problems: list[str]) -> str:
    guarantee = certificate.guarantee
    if problems:
        return f"the certificate DOES NOT verify: {problems[0]}"
    lines = [
        f"proved: ({guarantee['epsilon']:.4g}, {guarantee['delta']:g})-DP under {certificate.neighbouring}, "
        f"certificate verified: {output / 'certificate.json'}"
    ]
    score = context["held_out_score"]
    if score:
        name = "R²" if score["quantity"] == "r_squared" else "accuracy"
        lines.append(
            f"{name} on {score['samples']} held-out rows, released privately: {score['value']:.3f} "
            f"({score['low']:.3f} to {score['high']:.3f})"
        )
    elif held_out:
        lines.append("no score: the ledger had no room left for a release on the held-out rows")
    if context.get("audit"):
        lines.append(f"audit: {context['audit']['verdict']}")
    lines.append(f"Open {output / 'report.html'} next; then: gratis predict {output / 'model.gratis'} FILE")
    return "\n".join(lines)
