"""`gratis compare`: models and budgets in one table, from sizes alone (those of a file count as public)."""

from __future__ import annotations

from pathlib import Path

import typer

from gratis.cli.output import (
    DECIMAL_OPTION,
    ENCODING_OPTION,
    JSON_OPTION,
    SEPARATOR_OPTION,
    emit,
    numbers,
    showing,
    table,
)
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
from gratis.records.errors import GratisError

__all__ = ["compare"]


def compare(
    call: typer.Context,
    file: Path | None = typer.Argument(None, help="A table, for its sizes and types; or give --n and --d."),
    target: str | None = typer.Option(None, help="With a file: the column to predict."),
    n: int | None = typer.Option(None, "--n", help="Rows."),
    d: int | None = typer.Option(None, "--d", help="Columns."),
    classes: int | None = typer.Option(None, help="Number of classes; none for regression."),
    epsilon: str = typer.Option("0.5,1,2,4", help="Budgets, separated by commas."),
    delta: float = typer.Option(1e-5, help="Budget."),
    neighbouring: str = typer.Option("replace-one", help="replace-one or zero-out."),
    task: str = typer.Option("auto", help="With a file: auto (from the target's type), regression or classification."),
    schema: Path | None = SCHEMA_OPTION,
    ignore: str = IGNORE_OPTION,
    hash_buckets: int | None = HASH_OPTION,
    levels: list[str] = LEVELS_OPTION,
    private_levels: str = PRIVATE_LEVELS_OPTION,
    numeric: str = NUMERIC_OPTION,
    encoding: str | None = ENCODING_OPTION,
    separator: str | None = SEPARATOR_OPTION,
    decimal: str | None = DECIMAL_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Predict what privacy costs every model at every budget; nothing is trained on the data or spent."""
    from gratis.estimators.fit_plan import plan
    from gratis.estimators.model_choice import MODELS, choose_model
    from gratis.records.budget import Budget
    from gratis.records.facts import Facts
    from gratis.records.neighbouring import Neighbouring

    relation = Neighbouring.parse(neighbouring)
    budgets = [Budget(epsilon=e, delta=delta, neighbouring=relation) for e in numbers("--epsilon", epsilon)]
    if file is not None:
        if target is None:
            raise GratisError("with a file, name its --target column")
        from gratis.estimators.table_fit import table_sizes  # reading tables takes longer to load than a plan takes

        with whole_command(call):
            n, d, classes = table_sizes(
                file, target, task, schema=schema, ignore=listed(ignore) or (), hash_buckets=hash_buckets,
                levels=declared_levels(levels), private_levels=listed(private_levels) or (),
                numeric=listed(numeric) or (), encoding=encoding, separator=separator, decimal=decimal,
            )  # fmt: skip
    if n is None or d is None:
        raise GratisError("give a file and its --target, or the sizes --n and --d")
    facts = Facts(rows=n, columns=d, classes=classes)
    rows, data = [], []
    with showing("planning every model at every budget", quiet=as_json):
        for budget in budgets:
            chosen = choose_model(facts, budget).model
            for name in MODELS[facts.task]:
                cost = plan(name, rows=n, columns=d, classes=classes, budget=budget).cost if name != "mlp" else None
                found = cost._asdict() if cost else None
                data.append({"epsilon": budget.epsilon, "model": name, "chosen": name == chosen, "cost": found})
                shown = (
                    [f"{cost[0]:.3g}", f"{cost[1]:.3g} to {cost[2]:.3g}", cost[3]]
                    if cost
                    else ["not predicted", "", ""]
                )
                rows.append([f"{budget.epsilon:g}", name, *shown, "chosen" if name == chosen else ""])
    head = f"n = {n}, d = {d}" + (f", {classes} classes" if classes else "") + f", delta = {delta:g}, {neighbouring}"
    words = "Cost against the same model without privacy. Which model fits the data better, sizes cannot tell."
    shown_table = table(["epsilon", "model", "cost of privacy", "range", "unit", ""], rows)
    emit(
        {"n": n, "d": d, "classes": classes, "predictions": data}, as_json=as_json,
        text=f"{head}\n{shown_table}\n{words}",
    )  # fmt: skip
