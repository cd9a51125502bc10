"""`gratis quickstart`: plan → ledger → fit → certificate → audit → report, on data that ships with scikit-learn."""

from __future__ import annotations

import csv
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import typer

from gratis.cli.output import JSON_OPTION, emit, messages, showing
from gratis.records.checks import check_count

__all__ = ["quickstart", "write_people"]

_COLUMNS = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"]


def write_people(path: Path) -> None:
    """Write `people.csv`: income bends with age, rises with hours and with owning a house; some hours are missing."""
    rng = np.random.default_rng(7)
    n = 6000
    age, hours = rng.normal(44, 12, n).clip(18, 80).round(), rng.normal(36, 7, n).clip(5, 60).round(1)
    children, owner, silent = rng.integers(0, 4, n), rng.random(n) < 0.3, rng.random(n) < 0.05
    income = 30 + 0.4 * hours + 4 * owner - 0.012 * (age - 52) ** 2 + rng.normal(0, 3, n)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["age", "hours", "children", "owner", "income"])
        for i in range(n):
            stated = "" if silent[i] else f"{hours[i]:.1f}"
            rows.writerow([f"{age[i]:.0f}", stated, children[i], int(owner[i]), f"{income[i]:.2f}"])


def quickstart(
    output: Path = typer.Option(Path("gratis-quickstart"), help="Folder for the results (made if missing)."),
    epsilon: float = typer.Option(2.0, help="Budget."),
    delta: float = typer.Option(1e-4, help="Budget."),
    audit_runs: int = typer.Option(1000, help="Trainings on each of the two audited data sets."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Train a certified private model on the diabetes data and write a report; takes less than two minutes."""
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import train_test_split

    from gratis.accounting import verify_certificate
    from gratis.audits.worst_case import audit_full_batch
    from gratis.cli.model_report import write_report
    from gratis.estimators import DPLinearRegression
    from gratis.ledger import Ledger
    from gratis.records.budget import Budget

    console = messages(quiet=as_json)
    budget = Budget(epsilon=epsilon, delta=delta)
    check_count("audit-runs", audit_runs, minimum=50)
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    output.mkdir(parents=True, exist_ok=True)
    ledger_path = output / "budget.ledger"
    name = f"diabetes, run {1 + len(Ledger.open(ledger_path).names) if ledger_path.exists() else 1}"
    ledger = Ledger.open(ledger_path) if ledger_path.exists() else Ledger.create(ledger_path)
    ledger.create_budget(name, budget)
    console.print(f"1/5 budget {budget.describe()} written to {ledger_path}")

    with showing("2/5 planning and training", quiet=as_json):
        model = DPLinearRegression(epsilon, delta, ledger=str(ledger_path), dataset=name).fit(X_train, y_train)
    private = float(model.score(X_test, y_test))
    public = float(LinearRegression().fit(X_train, y_train).score(X_test, y_test))
    console.print(f"2/5 trained on {len(y_train)} rows: test R² {private:.3f} (without privacy {public:.3f})")

    certificate_path = output / "certificate.json"
    model.certificate_.write(certificate_path)
    problems = verify_certificate(model.certificate_)
    console.print(f"3/5 certificate {'verifies' if not problems else 'DOES NOT verify'}: {certificate_path}")

    with showing("4/5 attacking the descent on worst-case neighbours", quiet=as_json):
        audit = audit_full_batch(model.plan_, runs=audit_runs)
    console.print(f"4/5 audit: {audit.verdict}")

    with showing("5/5 writing the report", quiet=as_json):
        content = _content(model, budget, private, public, audit)
        report_path = output / "report.html"
        write_report(content, report_path)
        write_people(output / "people.csv")
    console.print(f"5/5 report written: {report_path}")
    emit(
        {
            "report": str(report_path),
            "certificate": str(certificate_path),
            "ledger": str(ledger_path),
            "example": str(output / "people.csv"),
            "test_r_squared": private,
            "test_r_squared_without_privacy": public,
            "guarantee": model.certificate_.guarantee | {"neighbouring": str(budget.neighbouring)},
            "certificate_verifies": not problems,
            "audit": audit.to_json(),
        },
        as_json=as_json,
        text=f"Open {report_path} next; then try an example table:\n"
        f"gratis fit {shlex.quote(str(output / 'people.csv'))} --target income --epsilon 1 --delta 1e-5",
    )
    if audit.alarm or problems:
        raise typer.Exit(3)


def _content(model: Any, budget: Any, private: float, public: float, audit: Any) -> Any:
    from gratis.audits.estimators import certified_records
    from gratis.cli.model_report import learnt_parts, privacy_parts
    from gratis.records.plans import cost_words
    from gratis.report.figures import cost_figure
    from gratis.report.page import ReportContent

    rows, columns = certified_records(model.certificate_), model.n_features_in_
    curve = _cost_curve(rows, columns, budget)
    cost = next(point for point in curve if point[0] == budget.epsilon)
    origin = "public here: the demonstration data is no secret"
    context = {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "file": "the diabetes data of scikit-learn"}
    return ReportContent(
        title="A private regression, planned, paid for and proved",
        subtitle=f"diabetes data of scikit-learn, {rows} rows for training, {columns} columns; Gratis quickstart",
        certificate=model.certificate_,
        numbers=[
            ("predicted cost of privacy", cost_words(*cost[1:], "R²")),
            ("epsilon, proved", f"{model.certificate_.guarantee['epsilon']:.4g}"),
            ("delta", f"{budget.delta:g}"),
            ("test R², private", f"{private:.3f}"),
            ("test R², without privacy", f"{public:.3f}"),
        ],
        scores=[
            {"score": "R² on 25 % held-out rows", "value": f"{private:.3f}", "from": origin},
            {"score": "the same without privacy", "value": f"{public:.3f}", "from": origin},
        ],
        reasons=model.plan_.reasons,
        **learnt_parts(model, _COLUMNS, {}),
        audit={
            **audit.to_json(),
            "words": f"{audit.mu.samples} trainings of the descent stage on two worst-case neighbours, the best test "
            "known for them, and exact binomial confidence bounds.",
        },
        cost_figures=[
            (
                "Predicted before the data is touched, from n, d and the budget alone.",
                cost_figure(curve, cost[:2], quantity="loss of R²"),
            ),
        ],
        command="gratis quickstart",
        **privacy_parts(model.certificate_, context),
    )


def _cost_curve(n_records: int, n_features: int, budget: Any) -> list[tuple[float, float, float, float]]:
    from gratis.estimators.fit_plan import plan
    from gratis.records.budget import Budget

    points = []
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        asked = Budget(epsilon=budget.epsilon * factor, delta=budget.delta, neighbouring=budget.neighbouring)
        found = plan("linear", rows=n_records, columns=n_features, budget=asked).prediction
        points.append((asked.epsilon or 0.0, 2 * found.value, 2 * found.low, 2 * found.high))
    return points
