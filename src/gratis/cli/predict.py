"""`gratis predict`: apply a saved model to the rows of a file, in constant memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from gratis.cli.output import (
    DECIMAL_OPTION,
    ENCODING_OPTION,
    JSON_OPTION,
    SEPARATOR_OPTION,
    echo,
    emit,
    refuse_overwriting,
)
from gratis.records.errors import GratisError

__all__ = ["predict"]

_ROWS_AT_ONCE = 4096


def predict(
    model: Path = typer.Argument(..., help="A model.gratis file."),
    file: Path = typer.Argument(..., help="Rows with the columns that the model was trained on."),
    output: Path | None = typer.Option(None, help="A .csv or .parquet file; default: CSV on the standard output."),
    encoding: str | None = ENCODING_OPTION,
    separator: str | None = SEPARATOR_OPTION,
    decimal: str | None = DECIMAL_OPTION,
    probabilities: bool = typer.Option(False, help="For classes: one column with the probability of each."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Predict every row of a file; the answers come in its order. An answer reveals its own row, as always."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from gratis.estimators.model_file import load_model
    from gratis.rows.tables import open_table

    saved = load_model(model)
    stored = saved.table()
    if stored is None:
        raise GratisError("this model was not made by `gratis fit`: it does not know the columns of a table")
    schema, levels = stored
    if probabilities and levels is None:
        raise GratisError("probabilities exist for classes only, and this model predicts a number")
    if output is not None and output.suffix not in (".csv", ".parquet"):
        raise GratisError(f"the output must be a .csv or .parquet file, got {output.name!r}")
    refuse_overwriting(output, file, model)
    names = [column.name for column in schema.used]
    table = open_table(file, encoding=encoding, separator=separator, decimal=decimal, columns=names)
    schema = schema.written_as(table)
    schema.check_types(table)
    rows = 0

    def answers() -> Any:
        nonlocal rows
        for batch in table.batches(names, _ROWS_AT_ONCE):
            X = schema.matrix(batch)
            rows += len(X)
            yield _answers(saved.estimator, X, levels, probabilities, pa)

    if output is None:
        text = None
        for found in answers():
            sink = pa.BufferOutputStream()
            pa.csv.write_csv(found, sink, pa.csv.WriteOptions(include_header=text is None))
            text = sink.getvalue().to_pybytes().decode()
            if not as_json and not echo(text, nl=False):
                return
        emit({"rows": rows, "output": None}, as_json=True, text="") if as_json else None
        return
    partial = output.with_name(output.name + ".partial")
    try:
        writer: Any = None
        for found in answers():
            if writer is None:
                kind = pa.parquet.ParquetWriter if output.suffix == ".parquet" else pa.csv.CSVWriter
                writer = kind(str(partial), found.schema)
            writer.write_table(found)
        if writer is None:
            raise GratisError("the file has no rows")
        writer.close()
        os.replace(partial, output)
    finally:
        partial.unlink(missing_ok=True)
    emit({"rows": rows, "output": str(output)}, as_json=as_json, text=f"{rows} predictions written to {output}")


def _answers(estimator: Any, X: Any, levels: list[str] | None, probabilities: bool, pa: Any) -> Any:
    if levels is None:
        return pa.table({"prediction": estimator.predict(X)})
    columns: dict[str, Any] = {"prediction": pa.array([levels[i] for i in estimator.predict(X).astype(int)])}
    if probabilities:
        shares = estimator.predict_proba(X)
        columns |= {f"probability of {level}": shares[:, i] for i, level in enumerate(levels)}
    return pa.table(columns)
