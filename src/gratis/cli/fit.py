"""`gratis fit`: from a file to a certified private model and a report."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gratis.cli.fit_progress import FitProgress
from gratis.cli.output import DECIMAL_OPTION, ENCODING_OPTION, JSON_OPTION, SEPARATOR_OPTION, emit, messages, showing
from gratis.cli.reading_options import (
    HASH_OPTION,
    IGNORE_OPTION,
    LEVELS_OPTION,
    NUMERIC_OPTION,
    PRIVATE_LEVELS_OPTION,
    SCHEMA_OPTION,
    declared_levels,
    listed,
    whole_command,
)
from gratis.records.errors import GratisError, WorthlessFitWarning

if TYPE_CHECKING:
    from rich.console import Console

    from gratis.estimators.model_folder import ModelFolder
    from gratis.estimators.private_fit import PrivateFit
    from gratis.estimators.release import LateLedger
    from gratis.estimators.table_fit import TableJob
    from gratis.records.certificates import Certificate
    from gratis.records.record import JsonObject

__all__ = ["fit"]

_FACTORS = {"random-features": (0.5, 1.0, 2.0)}  # planning these takes longer
_AUDIT_PAIRS = 24  # seconds; `gratis audit replay` does more
_ALL_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def fit(
    call: typer.Context,
    file: Path = typer.Argument(..., help="A table, one row a record: .csv, .tsv, .parquet, .jsonl, .xlsx, …"),
    target: str = typer.Option(..., help="The column to predict."),
    epsilon: float | None = typer.Option(None, help="Budget."),
    delta: float | None = typer.Option(None, help="Budget; below one over the number of rows."),
    plan_file: Path | None = typer.Option(None, "--plan", help="A plan of `gratis plan MODEL --output`: run that."),
    model: str = typer.Option("auto", help="auto, linear, logistic, additive, random-features or mlp."),
    task: str = typer.Option("auto", help="auto (from the target's type), regression or classification."),
    classes: str | None = typer.Option(None, help="Public list of classes, separated by commas."),
    schema: Path | None = SCHEMA_OPTION,
    ignore: str = IGNORE_OPTION,
    hash_buckets: int | None = HASH_OPTION,
    levels: list[str] = LEVELS_OPTION,
    private_levels: str = PRIVATE_LEVELS_OPTION,
    numeric: str = NUMERIC_OPTION,
    missing_target: str = typer.Option("refuse", help="refuse, or leave-out: such rows contribute nothing."),
    encoding: str | None = ENCODING_OPTION,
    separator: str | None = SEPARATOR_OPTION,
    decimal: str | None = DECIMAL_OPTION,
    neighbouring: str = typer.Option("replace-one", help="replace-one or zero-out."),
    unit: str | None = typer.Option(None, help="Column of ids: a person with all rows is protected, not a row."),
    algorithm: str | None = typer.Option(None, help="For linear and logistic: full-batch or one-pass."),
    features: str | None = typer.Option(None, help="For random-features: tanh, relu, erf or scattering (images)."),
    n_features: int | None = typer.Option(None, help="For random-features: how many."),
    inference: bool = typer.Option(False, "--inference", help="For linear and logistic: intervals of coefficients."),
    balanced: bool = typer.Option(False, "--balanced", help="Decide as if all classes were equally frequent; free."),
    hold_out: float = typer.Option(0.0, help="Share of the rows kept for a private score, at most 0.5."),
    ledger: Path | None = typer.Option(None, help="Ledger file that is asked first."),
    budget: str | None = typer.Option(None, help="Name of the data set's budget in the ledger."),
    output: Path = typer.Option(Path("gratis-fit"), help="Folder for model.gratis, certificate.json, report.html."),
    force: bool = typer.Option(False, "--force", help="Overwrite a model that is there already."),
    cluster: str | None = typer.Option(None, help="A Dask scheduler's address, or local:4: workers read the table."),
    memory: float = typer.Option(4.0, help="Gigabytes; for a larger fit the file is read again for every release."),
    force_delta: bool = typer.Option(False, "--force-delta", help="Accept a delta of one over the rows and more."),
    audit: bool = typer.Option(True, help="Audit the training after the model is saved."),
    report: bool = typer.Option(True, help="Write the report, with predictions for other budgets."),
    yes: bool = typer.Option(False, "--yes", help="Spend also where the plan expects to learn next to nothing."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Stop after the plan: nothing is spent or written."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Plan, ask the ledger, train with a guarantee, and write model, certificate and report."""
    from gratis.accounting import verify_certificate
    from gratis.estimators.fit_plan import read_plan
    from gratis.estimators.table_fit import plan_table_fit
    from gratis.records.budget import Budget
    from gratis.records.neighbouring import Neighbouring
    from gratis.rows.cluster_client import connected
    from gratis.rows.readings import readings_text

    console = messages(quiet=as_json)
    options: dict[str, Any] = {"algorithm": algorithm, "features": features, "n_features": n_features}
    options = {name: value for name, value in options.items() if value is not None}
    if inference:
        options["inference"] = True
    if balanced:
        options["class_weight"] = "balanced"
    planned = None
    if plan_file is not None:
        if options or model != "auto" or (epsilon, delta, neighbouring) != (None, None, "replace-one"):
            raise GratisError("a plan states model, settings, relation and budget: give --plan without them")
        planned = read_plan(plan_file)
        asked, model = planned.budget, planned.model
    elif epsilon is None or delta is None:
        raise GratisError("a fit needs --epsilon and --delta, or a --plan")
    else:
        asked = Budget(epsilon=epsilon, delta=delta, neighbouring=Neighbouring.parse(neighbouring))
    with FitProgress(asked, file.name) as run, ExitStack() as stack, whole_command(call):
        if algorithm is not None and model not in ("linear", "logistic"):
            raise GratisError("--algorithm belongs to --model linear and logistic")
        if inference and model not in ("linear", "logistic"):
            raise GratisError("--inference belongs to --model linear and logistic")
        if options.keys() - {"algorithm", "inference", "class_weight"} and model != "random-features":
            raise GratisError("--features and --n-features belong to --model random-features")
        with showing("planning from public facts", quiet=as_json):
            job = plan_table_fit(
                file, target, asked, model=model, task=task, classes=listed(classes), schema=schema,
                ignore=listed(ignore) or (), hash_buckets=hash_buckets, levels=declared_levels(levels),
                private_levels=listed(private_levels) or (), numeric=listed(numeric) or (), encoding=encoding,
                separator=separator, decimal=decimal, missing_target=missing_target, held_out=hold_out,
                memory_bytes=1e9 * memory, options=options, any_delta=force_delta, planned=planned, unit=unit,
            )  # fmt: skip
        books = None if dry_run else _open_ledger(ledger, budget, console)
        plan = _plan(job, cluster=cluster is not None, price=_price(job, books, budget))
        for sentence in (*readings_text(job.readings), *plan["words"]):
            console.print(sentence, highlight=False, soft_wrap=True, markup=False)
        if plan["worthless"] and (dry_run or yes):
            console.print(f"{plan['worthless']}.", highlight=False, soft_wrap=True, markup=False)
        if dry_run:
            emit(
                {"plan": plan, "spent": False}, as_json=as_json, text="dry run: nothing was read for training or spent"
            )
            return
        if books is not None:
            console.print(f"This run takes {plan['price']} from {budget!r}.", highlight=False, soft_wrap=True)
        from gratis.estimators.model_folder import ModelFolder  # brings scikit-learn, which a dry run does without

        folder = ModelFolder(output)
        for sentence in folder.prepare(force=force):
            console.print(sentence, highlight=False, soft_wrap=True)
        client = stack.enter_context(connected(cluster))
        with showing("checking that every cell can be read", quiet=as_json):
            job.check(client)
        if plan["worthless"] and not yes:  # asked last: whatever else is refused comes before it
            raise GratisError(f"{plan['worthless']}; nothing was spent: add --yes to spend it all the same")
        run.follow(folder, books, budget)
        with showing("training", quiet=as_json), warnings.catch_warnings():
            warnings.simplefilter("ignore", WorthlessFitWarning)  # it was said above
            done = job.run(
                ledger=books, dataset=budget, begin=run.begin, save=run.save, keep=folder.keep_levels, cluster=client
            )
        job = done.job
        if job.found is not None:
            console.print(job.found.words(str(folder.levels)), highlight=False, soft_wrap=True, markup=False)
        context, certificate = done.context, done.estimator.certificate_
        if context["changed"]:
            run.notes.append("The file changed while it was read: the release is spent and stands, for what was read.")
        problems = verify_certificate(certificate)
        run.add("the equivalent command", lambda: context.update(_again(call, job, file)))
        if books is not None and budget is not None:
            run.add("what is left in the ledger", lambda: context.update(ledger=books.status(budget).to_json()))
        if report:
            with showing("predicting other budgets", quiet=as_json):
                run.add("the prediction for other budgets", lambda: context.update(curve=_curve(job)))
        if audit:
            with showing("auditing the training", quiet=as_json):
                run.add("the audit", lambda: context.update(audit=_audit(job, done.estimator)))
        # Once more, with what the report shows and with the ledger's answer in the certificate.
        run.add("what the report shows, from the model file", lambda: run.save(done))
        if report:
            run.add("the report", lambda: _write_report(folder, done.estimator, context))
        for sentence in run.notes:
            console.print(sentence, highlight=False, soft_wrap=True)
        emit(
            {
                "plan": plan,
                "spent": True,
                "model": str(folder.model),
                "certificate": str(folder.certificate),
                "report": str(folder.report) if folder.report.exists() else None,
                "levels": None if job.found is None else {name: len(of) for name, of in job.found.levels.items()},
                "guarantee": certificate.guarantee | {"neighbouring": str(certificate.neighbouring)},
                "certificate_verifies": not problems,
                "expected_score": context["expected_score"],
                "held_out_score": context["held_out_score"],
                "held_out_scores": context["held_out_scores"],
                "audit": context.get("audit"),
                "notes": run.notes,
                "coefficients": _coefficients(done.estimator, "markdown"),
            },
            as_json=as_json,
            text="\n".join([*_coefficients(done.estimator), _last_words(folder, certificate, context, problems)]),
        )
    if problems or (context.get("audit") or {}).get("alarm"):
        raise typer.Exit(3)


def _coefficients(estimator: Any, output: str = "text") -> list[str]:
    """The table of coefficients, where the fit paid for intervals."""
    return [estimator.summary(output=output)] if hasattr(estimator, "inference_") else []


def _price(job: TableJob, books: LateLedger | None, budget: str | None) -> str:
    """What the run costs: from the budget that pays, or else its own."""
    from gratis.ledger.spending import price

    return (price(job.budget, (), job.event) if books is None else books.price(str(budget), job.event)).words


def _plan(job: TableJob, *, cluster: bool, price: str) -> dict[str, Any]:
    from gratis.estimators.worth import worthless_words

    cost = job.plan.cost
    return {
        "model": job.model,
        "task": job.task,
        "rows": job.n_records,
        "unit": job.unit,
        "columns": len(job.schema.names),
        "readings": [reading.to_json() for reading in job.readings],
        "streamed": job.streamed,
        "cost_of_privacy": None if cost is None else cost._asdict(),
        "price": price,
        "worthless": worthless_words(job.plan, job.unit),
        "words": job.words(cluster=cluster),
    }


def _open_ledger(ledger: Path | None, budget: str | None, console: Console) -> LateLedger | None:
    from gratis.estimators.release import LateLedger

    if (ledger is None) != (budget is None):
        raise GratisError("give both --ledger (a file) and --budget (a name in it), or neither")
    if ledger is None or budget is None:
        return None
    opened = LateLedger.open(ledger)
    lost = opened.status(budget).never_committed
    if lost:
        console.print(
            f"{len(lost)} earlier run(s) reserved from {budget!r} and never finished (killed or failed): what they "
            f"reserved stays spent; see `gratis ledger show`.",
            highlight=False,
            soft_wrap=True,
        )
    return opened


def _curve(job: TableJob) -> list[dict[str, Any]]:
    """The predicted cost of privacy at other budgets, by the same plan."""
    from gratis.estimators.fit_plan import plan

    if job.budget.epsilon is None:
        return []
    points = []
    for factor in _FACTORS.get(job.model, _ALL_FACTORS) if job.plan.cost is not None else ():
        epsilon = job.budget.epsilon * factor
        asked = replace(job.budget, epsilon=epsilon)
        found = plan(job.model, **asdict(job.plan.facts), budget=asked, **job.options).cost
        if found is not None:
            points.append({"epsilon": epsilon, **found._asdict()})
    return points


def _audit(job: TableJob, estimator: PrivateFit) -> JsonObject:
    """A short replay audit of the same options on synthetic rows. The model is saved already."""
    from gratis.audits.trainings import replay_audit

    facts = job.plan.facts
    audit = replay_audit(
        estimator, facts.rows, facts.columns, facts.task, facts.classes, pairs=_AUDIT_PAIRS,
        persons=job.persons is not None,
    )  # fmt: skip
    words = "Recorded on synthetic rows, replayed on hostile neighbours: values before the noise were compared."
    return audit.to_json() | {
        "words": " ".join([words, *(f"{limit[0].upper()}{limit[1:]}." for limit in audit.limits)])
    }


def _write_report(folder: ModelFolder, estimator: PrivateFit, context: dict[str, Any]) -> None:
    from gratis.cli.model_report import report_content, write_report

    write_report(report_content(estimator, context, folder.model), folder.report)


def _again(call: typer.Context, job: TableJob, file: Path) -> dict[str, str]:
    """The equivalent command and Python, without paths of this machine."""
    from gratis.cli.equivalents import shown_command, shown_python

    return {"command": shown_command(call), "python": shown_python(job, file.name, call.params)}


def _last_words(folder: ModelFolder, certificate: Certificate, context: dict[str, Any], problems: list[str]) -> str:
    from gratis.report.scores import MEASURES, held_out, score_lines

    guarantee = certificate.guarantee
    if problems:
        return f"the certificate DOES NOT verify: {problems[0]}"
    lines = [
        f"proved: ({guarantee['epsilon']:.4g}, {guarantee['delta']:g})-DP under {certificate.neighbouring}, "
        f"certificate verified: {folder.certificate}"
    ]
    expected, scores = context["expected_score"], held_out(context)
    if expected:
        caveat = "".join(expected["source"].partition("; ")[1:])
        lines.append(
            f"{MEASURES[expected['quantity']]} to be expected on fresh rows: {expected['value']:.2f} "
            f"({expected['low']:.2f} to {expected['high']:.2f} in 80 % of fits), paid for in the fit{caveat}"
        )
    if scores:
        lines.append(f"on {scores[0]['samples']} held-out {context['unit']}, released privately:")
        lines += [f"  {line}" for line in score_lines(scores)]
    elif context["no_score"]:
        lines.append(f"no score: {context['no_score']}")
    if context.get("audit"):
        lines.append(f"audit: {context['audit']['verdict']}")
    opened = f"Open {folder.report} next; then" if folder.report.exists() else "Next"
    lines.append(f"{opened}: gratis predict {folder.model} FILE")
    return "\n".join(lines)
