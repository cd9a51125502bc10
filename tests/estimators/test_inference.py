"""The words for coefficients with intervals: tables, files, refusals; and replay of a fit with inference."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from gratis import Descent, DPLinearRegression, load_model, save_model
from gratis.audits.hostile import HostileTables
from gratis.audits.trainings import audit_tables, estimator_training, replay_audit
from gratis.estimators.coefficient_table import coefficient_table
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.stages import one_step

SEEDED = {"noise_seed": 3, "insecure_reproducible": True}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((1500, 2)) * [3.0, 1.0]
Y = X @ [1.0, 0.0] + 5 + RNG.standard_normal(1500)
MODEL = DPLinearRegression(4.0, 1e-6, inference=True, **SEEDED).fit(X, Y)


def test_statsmodels_words_agree_with_each_other():
    params, errors = MODEL.params, MODEL.bse
    assert params.shape == errors.shape == (3,)
    assert np.abs(params - [5, 1, 0]).max() < 5 * errors.max()
    low, high = MODEL.conf_int().T
    assert (low + high) / 2 == pytest.approx(params)
    assert (high - low) / 2 == pytest.approx(1.959964 * errors)
    assert (np.diff(MODEL.conf_int(0.5)) < np.diff(MODEL.conf_int(0.95))).all()
    assert np.diag(MODEL.cov_params()) == pytest.approx(errors**2)
    assert ((MODEL.inference_.privacy_share > 0) & (MODEL.inference_.privacy_share < 1)).all()
    assert MODEL.inference_.pvalues[1] < 1e-6
    with pytest.raises(GratisError, match="between 0 and 1"):
        MODEL.conf_int(95)


def test_tables():
    text = MODEL.summary()
    assert "1500 rows" in text
    assert "epsilon" in text
    assert "Estimand: weighted" in text
    assert [line.split()[0] for line in text.splitlines()[6:9]] == ["const", "x1", "x2"]
    assert "[0.05" in MODEL.summary(0.9)
    assert MODEL.summary(output="markdown").splitlines()[1].startswith("| --- | ---:")
    assert MODEL.summary(output="latex").startswith(r"\begin{tabular}{lrrrrrrr}")
    assert MODEL.inference_._repr_html_() == MODEL.summary(output="html")
    assert '<th scope="row">x2</th>' in MODEL.summary(output="html")
    with pytest.raises(GratisError, match="output"):
        MODEL.summary(output="pdf")


def test_the_table_for_reports():
    found = coefficient_table(MODEL)
    assert [line[0] for line in found.lines] == ["const", "x1", "x2"]
    assert found.headings[-1] == "privacy's share"
    assert float(found.lines[1][1]) == pytest.approx(MODEL.params[1], rel=1e-3)
    few = coefficient_table(DPLinearRegression(4.0, 1e-6, inference=True, **SEEDED).fit(X[:50], Y[:50]))
    assert "withheld" in few.withheld
    assert few.spelt("html").startswith("<p>Intervals are withheld")
    assert coefficient_table(object()) is None


def test_contrasts_and_joint_tests_are_those_of_the_covariance():
    R = np.array([[0.0, 1.0, -1.0]])
    found = MODEL.t_test(R)
    assert found.effect[0] == pytest.approx(MODEL.params[1] - MODEL.params[2])
    assert found.sd[0] ** 2 == pytest.approx((R @ MODEL.cov_params() @ R.T)[0, 0])
    assert MODEL.t_test({"x1": 1, "x2": -1}).zvalue == pytest.approx(found.zvalue)
    assert MODEL.t_test({"x1": 1, "x2": -1}).found.names == ("x1 − x2",)
    assert MODEL.t_test({"x1": 2, "x2": -0.5}).found.names == ("2·x1 − 0.5·x2",)
    assert MODEL.t_test("x2").pvalue == pytest.approx(MODEL.pvalues[2])
    assert MODEL.t_test(["x1", "x2"], [1.0, 0.0]).effect.shape == (2,)
    assert "c0" in str(found)
    one = MODEL.wald_test("x2")
    assert (one.df, one.statistic) == (1, pytest.approx(MODEL.inference_.zvalues[2] ** 2))
    assert one.pvalue == pytest.approx(MODEL.pvalues[2])
    every = MODEL.wald_test()
    assert (every.df, every.pvalue < 1e-6) == (2, True)
    gap = MODEL.params[1:] - [1.0, 0.0]
    assert MODEL.wald_test(["x1", "x2"], [1.0, 0.0]).statistic == pytest.approx(
        gap @ np.linalg.inv(MODEL.cov_params()[1:, 1:]) @ gap
    )
    for wrong in ([[1.0, 0.0]], "age", [[0.0, 1.0, np.nan]]):
        with pytest.raises(GratisError):
            MODEL.t_test(wrong)
    with pytest.raises(GratisError, match="follow from each other"):
        MODEL.wald_test([[0, 1, 0], [0, 2, 0]])


@pytest.mark.statistical(failure=0.01)
@pytest.mark.slow
def test_intervals_of_predictions_cover():
    rng = np.random.default_rng(5)
    fresh = rng.standard_normal((2000, 2)) * [3.0, 1.0]
    truth = fresh @ [1.0, 0.0] + 5
    middle, low, high = MODEL.predict(fresh, interval="mean").T
    assert (low + high) / 2 == pytest.approx(middle)
    Z = np.column_stack([np.ones(2000), fresh])
    assert (high - middle) / 1.959964 == pytest.approx(np.sqrt(np.einsum("ij,jk,ik->i", Z, MODEL.cov_params(), Z)))
    answers, inside = truth + rng.standard_normal(2000), []
    for seed in range(8):  # the law of errors is noisy too: over fits, not in each
        model = DPLinearRegression(4.0, 1e-6, inference=True, noise_seed=seed, insecure_reproducible=True).fit(X, Y)
        _, below, above = model.predict(fresh, interval="observation", level=0.9).T
        inside.append(((answers > below) & (answers < above)).mean())
    assert 0.84 < np.mean(inside) < 0.96, inside
    with pytest.raises(GratisError, match="interval"):
        MODEL.predict(fresh, interval="both")
    with pytest.raises(AttributeError, match="inference=True"):
        DPLinearRegression(1.0, 1e-5, **SEEDED).fit(X[:50], Y[:50]).predict(X, interval="mean")


def test_odds_are_not_of_a_linear_regression():
    with pytest.raises(GratisError, match="logistic"):
        MODEL.inference_.odds_ratios()


@pytest.mark.slow
def test_winsorised_columns_are_another_estimand(tmp_path):
    """A curve over a skewed column: far rows rule least squares, and winsorised ones do not."""
    rng = np.random.default_rng(1)
    A = np.exp(rng.standard_normal((20_000, 1)))
    b = np.log(A[:, 0]) + rng.standard_normal(20_000)
    model = DPLinearRegression(4.0, 1e-6, inference="winsorised", **SEEDED).fit(A, b)
    features = model.fit_.features
    kept = features.inverse(features.transform(A))
    slope = np.cov(kept[:, 0], b)[0, 1] / np.var(kept[:, 0])
    assert abs(model.params[1] - slope) < 2 * model.bse[1]
    raw = np.cov(A[:, 0], b)[0, 1] / np.var(A[:, 0])
    assert abs(model.params[1] - raw) > 10 * model.bse[1]
    save_model(tmp_path / "m.gratis", model)
    loaded = load_model(tmp_path / "m.gratis").estimator
    assert (loaded.predict(A[:9], interval="mean") == model.predict(A[:9], interval="mean")).all()
    with pytest.raises(GratisError, match="inference must be"):
        DPLinearRegression(4.0, 1e-6, inference="plain").fit(A, b)


def test_names_of_columns_are_kept(tmp_path):
    import pandas as pd

    model = DPLinearRegression(4.0, 1e-6, inference=True, **SEEDED).fit(pd.DataFrame(X, columns=["age", "a|b_c"]), Y)
    save_model(tmp_path / "m.gratis", model)
    loaded = load_model(tmp_path / "m.gratis").estimator
    assert loaded.summary() == model.summary()
    assert "age" in loaded.summary()
    assert list(loaded.params.index) == ["const", "age", "a|b_c"]
    assert loaded.conf_int().loc["age", "low"] == pytest.approx(model.params["age"] - 1.959964 * model.bse["age"])
    assert list(model.cov_params().columns) == list(model.inference_.summary_frame().index)
    assert model.pvalues["age"] == model.inference_.summary_frame().loc["age", "p"]
    assert r"a\|b_c" in model.summary(output="markdown")
    assert r"b\_c" in model.summary(output="latex")


@pytest.mark.parametrize("rows", [1500, 50])
def test_files_keep_intervals_or_why_there_are_none(rows, tmp_path):
    model = DPLinearRegression(4.0, 1e-6, inference=True, **SEEDED).fit(X[:rows], Y[:rows])
    assert (model.inference_.withheld is None) == (rows == 1500)
    save_model(tmp_path / "m.gratis", model)
    loaded = load_model(tmp_path / "m.gratis").estimator
    assert loaded.inference is True
    assert loaded.summary() == model.summary()
    assert (loaded.predict(X) == model.predict(X)).all()
    if rows == 1500:
        assert (loaded.cov_params() == model.cov_params()).all()
        assert (loaded.inference_.privacy_share == model.inference_.privacy_share).all()


def test_what_does_not_go_together_is_refused():
    for extra in ({"algorithm": "one-pass"}, {"descent": Descent(steps=3)}, {"schedule": "harmonic"}):
        with pytest.raises(GratisError):
            DPLinearRegression(1.0, 1e-5, inference=True, **extra).fit(X, Y)
    plain = DPLinearRegression(1.0, 1e-5, **SEEDED).fit(X[:50], Y[:50])
    assert not hasattr(plain, "params")
    with pytest.raises(AttributeError, match="inference=True"):
        plain.summary()


@pytest.mark.slow(but=["zero-out-zero"])
@pytest.mark.parametrize(
    ("relation", "on_invalid"),
    [(Neighbouring.REPLACE_ONE, "raise"), (Neighbouring.REPLACE_ONE, "impute"), (Neighbouring.ZERO_OUT, "zero")],
)
def test_replay_of_hostile_pairs(relation, on_invalid):
    """60 rows at a large budget, so that intervals are paid for; every release is compared with its certified noise."""
    create = partial(DPLinearRegression, 20.0, 1e-3, inference=True, neighbouring=str(relation), on_invalid=on_invalid)
    tables = HostileTables(n=60, d=2, invalid=on_invalid != "raise")
    assert create().plan(60, 2).settings.kind == "linear-inference"
    found = audit_tables(partial(estimator_training, create), tables, relation, pairs=8, rng=np.random.default_rng(1))
    assert not found.alarm, (found.verdict, found.differences, found.examples)
    assert found.pairs == 8
    assert found.largest_ratio > 0.2


@pytest.mark.slow
def test_the_audit_of_an_estimator_runs_what_pays_for_intervals():
    found = replay_audit(DPLinearRegression(8.0, 1e-3, inference=True), 10**5, 10, "regression", pairs=4)
    assert not found.alarm, found.verdict


@pytest.mark.slow
def test_replay_notices_a_level_that_is_clipped_too_late(monkeypatch):
    def careless(rows, read, parameters, clip, plan, *, noise):
        def every(A, b):
            return np.clip(read(A, b, parameters)[2] / clip, -100, 100).sum(keepdims=True)

        return clip * float(noise.release(rows.total(every) / plan.n_records, plan.level.noise_std)[0])

    from gratis.recipes import linear_inference

    assert linear_inference.release_mean_residual is one_step.release_mean_residual
    monkeypatch.setattr(linear_inference, "release_mean_residual", careless)
    create = partial(DPLinearRegression, 20.0, 1e-3, inference=True)
    found = audit_tables(
        partial(estimator_training, create), HostileTables(n=60, d=2), Neighbouring.REPLACE_ONE, pairs=8,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    assert found.alarm


@pytest.mark.slow
def test_windows_say_where_coefficients_hold_and_which_levels_may_lie_beyond() -> None:
    """Levels 75 and 100 that enough rows have are inside; `hidden_share_` is a public number that falls with rows."""
    rng = np.random.default_rng(3)
    X = np.where(rng.random((6000, 3)) < 0.3, 100.0, 75.0)
    y = X @ [1.0, -1.0, 0.5] + rng.standard_normal(6000)
    asked = {"noise_seed": 1, "insecure_reproducible": True}
    model = DPLinearRegression(1.0, 1e-6, **asked).fit(X, y)
    assert model.hidden_share_ < 0.1
    assert (model.windows_[:, 0] <= 75.0).all()
    assert (model.windows_[:, 1] >= 100.0).all()
    assert DPLinearRegression(1.0, 1e-6, **asked).fit(-X, y).hidden_share_ == model.hidden_share_
    assert DPLinearRegression(4.0, 1e-6, **asked).fit(X, y).hidden_share_ < model.hidden_share_
    assert DPLinearRegression(1.0, 1e-6, preprocessing="none", **asked).fit(X / 100, y / 100).hidden_share_ == 0.0
