"""Additive models: nothing beyond the certificate is seen, and what they learn is what they show."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from gratis import DPAdditiveClassifier, DPAdditiveRegressor, DPLinearRegression, load_model, save_model
from gratis.accounting import verify_certificate
from gratis.audits.hostile import HostileTables
from gratis.audits.trainings import audit_tables, estimator_training
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.rows.streaming import ArrayRows

SEEDED: dict[str, Any] = {"noise_seed": 3, "insecure_reproducible": True}
RNG = np.random.default_rng(0)


def bent(n: int = 6000, seed: int = 0) -> tuple[Any, Any]:
    """Two bent columns, a product of two others, a column with three levels, one that does nothing."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 5)) * [1, 10, 1, 100, 1] + [0, 5, 0, 50, 0], rng.integers(0, 3, n)])
    Z = (X[:, :5] - [0, 5, 0, 50, 0]) / [1, 10, 1, 100, 1]
    y = np.sin(2 * Z[:, 0]) + np.abs(Z[:, 1]) + Z[:, 2] * Z[:, 3] + 0.5 * X[:, 5] + 0.3 * rng.normal(size=n)
    return X, 1000 + 20 * y


X, Y = bent()
TEST_X, TEST_Y = bent(seed=1)
LEVELS = {5: 3}
CLASSES = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))


# ---- privacy


def replayed(
    kind: Any, relation: str, on_invalid: str, *, pairs: int, n: int = 60, epsilon: float = 40.0, **options: Any
) -> Any:
    """Large budgets, so that every stage runs on a small table: curves, pairs and all."""

    def create() -> Any:
        return kind(epsilon=epsilon, delta=1e-5, neighbouring=relation, on_invalid=on_invalid, **options)

    labels = options.get("classes")
    tables = HostileTables(n=n, d=3, classes=labels, invalid=on_invalid != "raise")
    return audit_tables(
        partial(estimator_training, create), tables, Neighbouring.parse(relation), pairs=pairs,
        rng=np.random.default_rng(5),
    )  # fmt: skip


LEVELLED: dict[str, Any] = {"categorical": {2: 4}, "monotone": {0: "increasing"}}


@pytest.mark.slow(but=["valid-replace-one"])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize(
    ("kind", "on_invalid", "options"),
    [
        (DPAdditiveRegressor, "raise", {}),
        (DPAdditiveRegressor, "zero", {}),
        (DPAdditiveRegressor, "impute", LEVELLED),
        (DPAdditiveClassifier, "zero", {"classes": [0, 1]}),
        (DPAdditiveClassifier, "impute", {"classes": ["a", "b", "c"]}),
    ],
    ids=["valid", "left out", "levels", "two classes", "three classes"],
)
def test_hostile_neighbours_show_no_more_than_certified(
    kind: Any, on_invalid: str, options: dict[str, Any], relation: str
) -> None:
    audit = replayed(kind, relation, on_invalid, pairs=12, **options)
    assert not audit.alarm, audit.differences or (audit.largest_ratio, audit.worst_pair)
    assert audit.pairs == 12
    assert audit.largest_ratio > 0.3


@pytest.mark.slow
def test_the_audit_sees_a_gradient_that_is_not_clipped(monkeypatch: Any) -> None:
    """Negative control."""
    from gratis.recipes import additive_learning, additive_plan

    def unclipped(*args: Any, clip_norm: float, **rest: Any) -> Any:
        # Weights are computed for a clip norm that is never reached, noise for the planned one.
        found, std = additive_gradient(*args, clip_norm=1e6 * clip_norm, **rest)
        return found, std

    additive_gradient = additive_learning.release_gradient
    monkeypatch.setattr(additive_learning, "release_gradient", unclipped)
    honest = replayed(DPAdditiveRegressor, "replace-one", "raise", pairs=8)
    assert not honest.alarm  # a wider clip norm with its own noise is still private
    plan = additive_plan.plan_gradients
    monkeypatch.setattr(additive_learning, "release_gradient", additive_gradient)

    def too_little_noise(*args: Any, mu: float, **rest: Any) -> Any:
        made = plan(*args, mu=30 * mu, **rest)
        from dataclasses import replace

        events = tuple(replace(event, sensitivity=event.sensitivity / 30) for event in made.events)
        return replace(made, events=events)

    monkeypatch.setattr(additive_plan, "plan_gradients", too_little_noise)
    assert replayed(DPAdditiveRegressor, "replace-one", "raise", pairs=8).alarm


def test_the_certificate_verifies_and_states_the_plan() -> None:
    model = DPAdditiveRegressor(epsilon=1.0, delta=1e-5, **SEEDED).fit(X, Y)
    assert not verify_certificate(model.certificate_)
    assert model.certificate_.event == model.plan_.event
    assert model.certificate_.guarantee["epsilon"] <= 1.0


@pytest.mark.slow(but=["options1-no column"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"categorical": {5: 2}}, "levels outside"),
        ({"categorical": {9: 2}}, "no column"),
        ({"categorical": {"age": 2}}, "no column"),
        ({"categorical": {5: 1}}, "levels"),
        ({"pairs": "all"}, "pairs"),
        ({"monotone": {0: "up"}}, "monotone"),
        ({"monotone": {5: "increasing"}, "categorical": LEVELS}, "order"),
    ],
)
def test_bad_declarations_are_refused_before_anything_is_spent(options: dict[str, Any], words: str) -> None:
    with pytest.raises(GratisError, match=words):
        DPAdditiveRegressor(1.0, 1e-5, **options).fit(X, Y)


# ---- quality


def test_better_than_linear_where_the_truth_is_bent_and_better_with_more_budget() -> None:
    def score(kind: Any, epsilon: float, **options: Any) -> float:
        model = kind(epsilon=epsilon, delta=1e-5, **options, **SEEDED).fit(X, Y)
        return float(model.score(TEST_X, TEST_Y))

    scores = [score(DPAdditiveRegressor, epsilon, categorical=LEVELS) for epsilon in (0.1, 1.0, 10.0)]
    assert scores[0] < scores[1] < scores[2]
    assert scores[1] > 0.6
    assert scores[2] > 0.85
    assert score(DPLinearRegression, 10.0) < 0.3
    assert score(DPAdditiveRegressor, 10.0, pairs=False) < scores[2] - 0.2


def heavy(n: int = 6000, seed: int = 0) -> tuple[Any, Any]:
    """Columns with tails of a thousand medians, half of one of them zeros, and a truth in their logarithms."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 3))
    rows = np.exp(2.5 * Z) * [1, 1000, 1]
    rows[::2, 2] = 0.0
    return rows, Z[:, 0] + np.sin(2 * Z[:, 1]) + np.where(rows[:, 2] > 0, Z[:, 2], -1) + 0.3 * rng.normal(size=n)


@pytest.mark.slow
def test_heavy_tails_cost_nothing_and_more_budget_is_better(monkeypatch: Any) -> None:
    """Equal bins grow with the budget, as more of the tail is seen, and told ever fewer values apart."""
    from gratis.recipes import additive_run

    rows, truth = heavy()
    fresh = heavy(seed=1)

    def score(kind: Any, epsilon: float) -> float:
        return float(kind(epsilon=epsilon, delta=1e-5, **SEEDED).fit(rows, truth).score(*fresh))

    scores = [score(DPAdditiveRegressor, epsilon) for epsilon in (0.3, 1.0, 3.0, 30.0)]
    assert (np.diff(scores) > 0).all()
    assert scores[2] > 0.75
    assert scores[1] > score(DPLinearRegression, 30.0)
    release = additive_run.release_location_scale
    monkeypatch.setattr(
        additive_run,
        "release_location_scale",
        lambda *given, **options: release(*given, **options | {"logarithms": False}),
    )
    assert score(DPAdditiveRegressor, 3.0) < scores[2] - 0.1


def test_shapes_of_heavy_columns_are_in_their_units_and_drawn_as_they_were_read(tmp_path: Any) -> None:
    rows, truth = heavy()
    model = DPAdditiveRegressor(epsilon=8.0, delta=1e-5, **SEEDED).fit(rows, truth)
    curve = model.shapes_["1"]
    assert 30 < curve.knee < 1000  # the median is 1000
    known = (curve.grid > 30) & (curve.grid < 30_000)
    assert known.sum() > 20
    expected = np.sin(2 * np.log(curve.grid[known] / 1000) / 2.5)
    assert np.abs(curve.effect[known] - expected).mean() < 0.2
    assert [axes.get_xscale() for axes in model.plot_shapes(3).axes] == ["asinh"] * 3
    save_model(tmp_path / "model.gratis", model)
    again = load_model(tmp_path / "model.gratis").estimator
    assert np.array_equal(again.predict(rows), model.predict(rows))
    assert again.shapes_["1"].knee == curve.knee
    assert np.array_equal(again.shapes_["1"].grid, curve.grid)
    pieces = DPAdditiveRegressor(epsilon=8.0, delta=1e-5, **SEEDED).fit_rows(ArrayRows(rows, truth, batch_rows=777))
    assert np.array_equal(pieces.predict(rows), model.predict(rows))


def test_straight_truths_are_learnt_as_lines() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(4000, 4))
    target = rows @ [1.0, -0.5, 0.25, 0.0] + 0.5 * rng.normal(size=4000)
    score = (
        DPAdditiveRegressor(epsilon=1.0, delta=1e-5, **SEEDED)
        .fit(rows[:3000], target[:3000])
        .score(rows[3000:], target[3000:])
    )
    assert score > DPLinearRegression(epsilon=1.0, delta=1e-5, **SEEDED).fit(rows[:3000], target[:3000]).score(
        rows[3000:], target[3000:]
    ) - 0.03  # fmt: skip


@pytest.mark.slow
def test_a_tiny_table_is_hardly_worse_than_the_mean() -> None:
    # 200 rows at ε = 1 are N = nμ/κ = 27 records in units of the noise; with half of that single fits go far astray.
    scores = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(300, 8))
        target = 50 + 3 * rows[:, 0] + rng.normal(size=300)
        model = DPAdditiveRegressor(epsilon=1.0, delta=1e-5, noise_seed=seed, insecure_reproducible=True)
        scores.append(model.fit(rows[:200], target[:200]).score(rows[200:], target[200:]))
    assert np.median(scores) > -0.1
    assert min(scores) > -2


@pytest.mark.slow
def test_classes_are_learnt_also_rare_ones() -> None:
    model = DPAdditiveClassifier(epsilon=2.0, delta=1e-5, classes=[0, 1, 2], categorical=LEVELS, **SEEDED).fit(
        X, CLASSES
    )
    assert model.score(X, CLASSES) > 0.75
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
    rare = (Y > np.quantile(Y, 0.97)).astype(int)
    found = DPAdditiveClassifier(epsilon=2.0, delta=1e-5, classes=[0, 1], categorical=LEVELS, **SEEDED).fit(X, rare)
    probability = found.predict_proba(TEST_X)[:, 1]
    assert probability.mean() == pytest.approx(0.03, abs=0.02)
    truth = TEST_Y > np.quantile(Y, 0.97)
    assert np.median(probability[truth]) > 5 * np.median(probability[~truth])


# ---- what it shows


@pytest.mark.slow
def test_contributions_sum_to_the_prediction() -> None:
    model = DPAdditiveRegressor(epsilon=5.0, delta=1e-5, categorical=LEVELS, **SEEDED).fit(X, Y)
    for row in TEST_X[:5]:
        assert sum(model.explain(row).values()) == pytest.approx(model.predict(row[None])[0])
    two = DPAdditiveClassifier(epsilon=5.0, delta=1e-5, **SEEDED).fit(X, CLASSES > 0)
    # What rounding leaves is no limit.
    assert "limit of the target" not in model.explain(X[0])
    assert sum(two.explain(X[0]).values()) == pytest.approx(two.decision_function(X[:1])[0])
    three = DPAdditiveClassifier(epsilon=5.0, delta=1e-5, **SEEDED).fit(X, CLASSES)
    assert sum(three.explain(X[0]).values()) == pytest.approx(three.decision_function(X[:1])[0])


def test_shapes_are_in_the_units_of_the_table_and_their_bands_hold_the_truth() -> None:
    model = DPAdditiveRegressor(epsilon=5.0, delta=1e-5, categorical=LEVELS, **SEEDED).fit(X, Y)
    assert "2 × 3" in model.term_importances_
    shapes = model.shapes_
    assert len(shapes) == len(model.term_importances_)
    sine = shapes["0"]
    truth = 20 * np.sin(2 * sine.grid)
    inside = (sine.low - 2 <= truth) & (truth <= sine.high + 2)  # bins are piecewise constant
    assert sine.share @ inside > 0.85 * sine.share.sum()
    steps = shapes["5"]
    assert np.allclose(np.diff(steps.effect), 10.0, atol=2.5)
    surface = shapes["2 × 3"]
    assert surface.effect.shape == (len(surface.grids[0]), len(surface.grids[1]))
    assert surface.effect[-1, -1] > 0 > surface.effect[0, -1]
    assert surface.grids[1].max() > 150  # column 3 has scale 100


@pytest.mark.slow
def test_monotone_curves_are_monotone() -> None:
    options = {"epsilon": 1.0, "monotone": {1: "increasing", 4: "decreasing"}}
    model = DPAdditiveRegressor(delta=1e-5, **options, **SEEDED).fit(X, Y)
    assert (np.diff(model.shapes_["1"].effect) >= 0).all()
    assert (np.diff(model.shapes_["4"].effect) <= 0).all()
    grid = np.tile(X[0], (200, 1))
    grid[:, 1] = np.linspace(-40, 60, 200)
    assert (np.diff(model.predict(grid)) >= 0).all()
    free = DPAdditiveRegressor(epsilon=1.0, delta=1e-5, **SEEDED).fit(X, Y)
    assert not (np.diff(free.shapes_["1"].effect) >= 0).all()  # |x| is not


@pytest.mark.slow
def test_the_picture_has_a_panel_for_every_term() -> None:
    model = DPAdditiveRegressor(epsilon=5.0, delta=1e-5, categorical=LEVELS, **SEEDED).fit(X, Y)
    figure = model.plot_shapes()
    assert len(figure.axes) == len(model.shapes_) + 1  # and the scale of colours
    assert len(model.plot_shapes(2).axes) <= 3
    DPAdditiveClassifier(epsilon=5.0, delta=1e-5, pairs=False, **SEEDED).fit(X, CLASSES).plot_shapes()


# ---- where rows come from, where models go


@pytest.mark.slow
@pytest.mark.parametrize("batch", [100, 4096, 5000])
def test_batches_give_the_same_bits_as_an_array(batch: int) -> None:
    options: dict[str, Any] = {"epsilon": 5.0, "categorical": LEVELS, "on_invalid": "impute", **SEEDED}
    holes = X.copy()
    holes[::7, 1], holes[3, 5] = np.nan, 9.0
    whole = DPAdditiveRegressor(delta=1e-5, **options).fit(holes, Y)
    pieces = DPAdditiveRegressor(delta=1e-5, **options).fit_rows(ArrayRows(holes, Y, batch_rows=batch))
    assert np.array_equal(whole.model_.coefficients, pieces.model_.coefficients)
    assert np.array_equal(whole.predict(TEST_X), pieces.predict(TEST_X))
    labels: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-5, "classes": [0, 1, 2], **SEEDED}
    a = DPAdditiveClassifier(**labels).fit(X, CLASSES)
    b = DPAdditiveClassifier(**labels).fit_rows(ArrayRows(X, CLASSES, batch_rows=batch))
    assert np.array_equal(a.predict_proba(TEST_X), b.predict_proba(TEST_X))


@pytest.mark.slow(but=["DPAdditiveRegressor-options1-target1"])
@pytest.mark.parametrize(
    ("kind", "options", "target"),
    [
        (DPAdditiveRegressor, {"categorical": LEVELS, "monotone": {1: "increasing"}}, Y),
        (DPAdditiveRegressor, {"pairs": False, "on_invalid": "impute"}, Y),
        (DPAdditiveClassifier, {}, np.where(CLASSES > 0, "yes", "no")),
        (DPAdditiveClassifier, {"categorical": LEVELS}, CLASSES),
    ],
)
def test_a_saved_model_comes_back_the_same(tmp_path: Any, kind: Any, options: dict[str, Any], target: Any) -> None:
    model = kind(epsilon=5.0, delta=1e-5, **options, **SEEDED).fit(X, target)
    save_model(tmp_path / "model.gratis", model)
    again = load_model(tmp_path / "model.gratis").estimator
    assert np.array_equal(again.predict(TEST_X), model.predict(TEST_X))
    assert again.term_importances_ == model.term_importances_
    assert np.array_equal(again.shapes_["0"].low, model.shapes_["0"].low)
    assert again.categorical == model.categorical
    assert again.monotone == model.monotone


def test_names_of_columns_are_those_of_the_frame() -> None:
    pandas = pytest.importorskip("pandas")
    names = ["angle", "height", "left", "right", "idle", "kind"]
    frame = pandas.DataFrame(X, columns=names)
    model = DPAdditiveRegressor(
        delta=1e-5, epsilon=5.0, categorical={"kind": 3}, monotone={"idle": "increasing"}, **SEEDED
    )
    model.fit(frame, Y)
    assert {"angle", "kind", "left × right"} <= set(model.term_importances_)
