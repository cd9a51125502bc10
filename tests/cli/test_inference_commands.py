"""`gratis plan --inference` and `gratis fit --inference`: widths before the data, a table of coefficients after it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gratis import load_model
from gratis.cli.program import app
from gratis.records.errors import GratisError
from gratis.rows.encoding import TableSchema

RUNNER = CliRunner()
BUDGET = ["--epsilon", "4", "--delta", "1e-6"]


@pytest.mark.slow
def test_plan_says_how_wide_and_what_would_be_narrower():
    found = RUNNER.invoke(
        app, ["plan", "linear", "--n", "20000", "--d", "5", *BUDGET, "--inference", "--target-width", "1.2", "--json"]
    )
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    width, needed = data["prediction"]["interval_width_over_ols"], data["target_width"]
    assert 1 < width < 1.2
    assert needed["rows"] < 20_000
    assert needed["epsilon"] < 4
    again = RUNNER.invoke(
        app, ["plan", "linear", "--n", str(needed["rows"]), "--d", "5", *BUDGET, "--inference", "--json"]
    )
    assert json.loads(again.stdout)["prediction"]["interval_width_over_ols"] == pytest.approx(1.2, rel=0.02)
    for wrong in (["plan", "additive", "--inference"], ["plan", "linear", "--target-width", "2"]):
        refused = RUNNER.invoke(app, [*wrong, "--n", "2000", "--d", "5", *BUDGET])
        assert isinstance(refused.exception, GratisError)


@pytest.mark.slow
def test_fit_prints_the_table_with_a_reference_level(tmp_path):
    rng = np.random.default_rng(0)
    n = 4000
    region = rng.integers(0, 3, n)
    wage = 1.0 + 0.5 * region + 0.1 * (schooling := rng.normal(12, 3, n)) + rng.normal(0, 0.5, n)
    frame = pd.DataFrame({"schooling": schooling, "region": np.array(["north", "south", "west"])[region], "wage": wage})
    frame.to_csv(tmp_path / "wages.csv", index=False)
    levels = {"kind": "categorical", "levels": ["north", "south", "west"], "reference": "south"}
    (tmp_path / "schema.json").write_text(json.dumps({"columns": {"region": levels}}))
    found = RUNNER.invoke(
        app,
        ["fit", str(tmp_path / "wages.csv"), "--target", "wage", *BUDGET, "--model", "linear", "--inference",
         "--schema", str(tmp_path / "schema.json"), "--output", str(tmp_path / "out"), "--no-audit", "--no-report"],
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    assert "region=north" in found.stdout
    assert "region=south" not in found.stdout
    model = load_model(tmp_path / "out" / "model.gratis").estimator
    assert list(model.params.index) == ["const", "schooling", "region=north", "region=west"]
    assert abs(model.params["region=north"] + 0.5) < 5 * model.bse["region=north"]
    refused = RUNNER.invoke(
        app, ["fit", str(tmp_path / "wages.csv"), "--target", "wage", *BUDGET, "--inference", "--ignore", "region"]
    )
    assert isinstance(refused.exception, GratisError)


def test_references_are_levels_and_the_first_by_default():
    levels = {"kind": "categorical", "levels": ["a", "b"]}
    schema = TableSchema.from_json({"columns": {"k": levels}}).with_references()
    assert schema.names == ("k=b",)
    assert TableSchema.from_json(schema.to_json()) == schema
    with pytest.raises(Exception, match="must be one of its levels"):
        TableSchema.from_json({"columns": {"k": levels | {"reference": "c"}}})
