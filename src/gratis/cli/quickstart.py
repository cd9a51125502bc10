"""`gratis quickstart`: plan → ledger → fit → certificate → audit → report, on data that ships with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from gratis.cli.output import JSON_OPTION, emit, messages, showing
from gratis.records.checks import check_count

__all__ = ["quickstart"]


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
    from gratis.audits.planned_descent import audit_full_batch
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
    console.print(f"5/5 report written: {report_path}")
    emit(
        {
            "report": str(report_path),
            "certificate": str(certificate_path),
            "ledger": str(ledger_path),
            "test_r_squared": private,
            "test_r_squared_without_privacy": public,
            "guarantee": model.certificate_.guarantee | {"neighbouring": str(budget.neighbouring)},
            "certificate_verifies": not problems,
            "audit": audit.to_json(),
        },
        as_json=as_json,
        text=f"Open {report_path} next; then try: gratis plan linear --n 20000 --d 200 --epsilon 1 --delta 1e-6",
    )
    if audit.alarm or problems:
        raise typer.Exit(3)


def _content(model: Any, budget: Any, private: float, public: float, audit: Any) -> Any:
    from gratis.audits.estimators import certified_records
    from gratis.cli.model_report import tradeoff_curve
    from gratis.report.figures import cost_figure, tradeoff_figure
    from gratis.report.page import ReportContent

    mu = model.certificate_.mu
    prediction = model.prediction_
    rows, columns = certified_records(model.certificate_), model.n_features_in_
    curve = _cost_curve(rows, columns, budget)
    relative = prediction.details["relative_value"]
    return ReportContent(
        title="A private regression, planned, paid for and proved",
        subtitle=f"diabetes data of scikit-learn, {rows} rows for training, {columns} columns; Gratis quickstart",
        certificate=model.certificate_,
        numbers=[
            ("epsilon, proved", f"{model.certificate_.guarantee['epsilon']:.4g}"),
            ("delta", f"{budget.delta:g}"),
            ("neighbouring relation", str(budget.neighbouring)),
            ("Gaussian-DP mu", f"{mu:.4g}"),
            ("test R², private", f"{private:.3f}"),
            ("test R², without privacy", f"{public:.3f}"),
        ],
        reasons=model.plan_.reasons,
        scores=[
            ("R² on 25 % held-out rows", f"{private:.3f}", "public here: the demonstration data is no secret"),
            ("predicted loss of R² to privacy and sampling", f"{2 * relative:.3f}", prediction.source),
        ],
        audit={
            **audit.to_json(),
            "words": f"{audit.mu.samples} trainings of the descent stage on two worst-case neighbours, the best test "
            "known for them, and exact binomial confidence bounds.",
        },
        figures=[
            ("No attack, however clever, reaches the shaded region.", tradeoff_figure(tradeoff_curve(mu))),
            (
                "Predicted before the data is touched, from n, d and the budget alone.",
                cost_figure(curve, (budget.epsilon, 2 * model.plan_.prediction.value), quantity="loss of R²"),
            ),
        ],
    )


def _cost_curve(n_records: int, n_features: int, budget: Any) -> list[tuple[float, float, float, float]]:
    from gratis.recipes.staged_linear import predict_staged
    from gratis.records.budget import Budget

    points = []
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        asked = Budget(epsilon=budget.epsilon * factor, delta=budget.delta, neighbouring=budget.neighbouring)
        found = predict_staged(n_records, n_features, asked)
        points.append((asked.epsilon or 0.0, 2 * found.value, 2 * found.low, 2 * found.high))
    return points
