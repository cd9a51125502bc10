"""What reports and notebooks say: true, never rounded in our favour, and escaped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gratis
from gratis import Budget, DPLinearRegression, Ledger, load_model
from gratis.cli.model_report import report_content
from gratis.records.assumptions import ASSUMPTIONS
from gratis.records.predictions import Estimate
from gratis.report.page import _share, render_page
from gratis.report.scores import held_out, score_table

OLD = Path(__file__).parents[1] / "estimators" / "files_0_1_0"
X = np.random.default_rng(0).normal(size=(400, 2))


@pytest.fixture(scope="module")
def model() -> DPLinearRegression:
    return DPLinearRegression(epsilon=1.0, delta=1e-5).fit(X, X @ [1.0, 2.0])


@pytest.mark.parametrize("value", [0.0101, 0.0199999, 0.52001, 0.999, 1.0, 0.5])
def test_percentages_are_never_rounded_down(value: float) -> None:
    assert float(_share(value).removesuffix(" %")) >= 100 * value - 1e-9


def test_every_assumption_has_a_way_to_check_it() -> None:
    for name in ("row-order", "parameters-only", "public-inputs", "public-classes", "disjoint-parts", "full-batch"):
        assert ASSUMPTIONS[name].check


def test_the_privacy_officer_reads_numbers_in_sentences(model: DPLinearRegression) -> None:
    text = render_page(report_content(model, {}))
    assert "with at most 56 % right answers. A coin has 50 %." in text
    assert "recognises at most 2 % of those" in text
    assert "nobody counts" in text
    assert "withheld: it is a function of private rows" in text


def test_a_model_without_context_has_a_report_too(model: DPLinearRegression) -> None:
    text = render_page(report_content(model, {}))
    assert "x2" in text
    assert "no rows were held out" in text


@pytest.mark.parametrize("path", sorted(OLD.rglob("*.gratis")), ids=lambda path: path.stem)
def test_files_of_before_have_a_report(path: Path) -> None:
    saved = load_model(path)
    assert "For the privacy officer" in render_page(report_content(saved.estimator, saved.context, path))


def test_there_are_files_of_before() -> None:
    assert list(OLD.rglob("*.gratis"))


def test_one_score_of_earlier_versions_is_read() -> None:
    old = {"held_out_score": {"quantity": "r_squared", "value": 0.5, "low": 0.4, "high": 0.6, "samples": 10}}
    assert score_table(held_out(old)) == [("R²", "0.500", "0.400 to 0.600", "")]


def test_notebooks_show_plans_certificates_predictions_and_ledgers(model: DPLinearRegression, tmp_path: Path) -> None:
    plan = gratis.plan("linear", rows=5000, columns=4, epsilon=1.0, delta=1e-6)
    assert "Privacy is predicted to cost" in plan._repr_html_()
    assert "Plan" in model.plan_._repr_html_()
    assert "replace-one" in model.certificate_._repr_html_()
    assert "Predicted" in model.prediction_._repr_html_()
    made = Estimate(quantity="a<b", value=0.5, low=0.4, high=0.6, confidence=0.95, samples=9, method="<i>")
    assert "a&lt;b" in made._repr_html_()
    assert "<i>" not in made._repr_html_()
    ledger = Ledger.create(tmp_path / "l", {"<people>": Budget(epsilon=1.0, delta=1e-5)})
    assert "&lt;people&gt;" in ledger._repr_html_()
    (tmp_path / "l").unlink()
    assert "Ledger" in ledger._repr_html_()
