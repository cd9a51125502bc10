"""Linear regression as a function of a session: its plan is its run, on every kind of rows; replayed on neighbours."""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest

from gratis.accounting import account, leaf_mu
from gratis.audits.hostile import HostileTables, Table
from gratis.audits.replay import Fitted
from gratis.audits.trainings import audit_tables
from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models import linear as module
from gratis.models.linear import LinearFit, linear, second_moments_pay
from gratis.private.memory import fit_memory
from gratis.private.reading import Reading
from gratis.private.session import plan, run
from gratis.recipes.linear import Linear
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from gratis.records.settings import Descent

RELATIONS = list(Neighbouring)
PUBLIC = Reading(standardise=False, features=Standardiser.identity(3), target=Standardiser.identity(1))
WAYS: dict[str, dict[str, Any]] = {
    "private scales": {},
    "public scales": {"reading": PUBLIC},
    "imputed": {"reading": Reading(impute=True)},
    "given descent": {"descent": Descent(steps=8, clip_norm=1.0, learning_rate=0.5)},
    "wide": {"mu": 0.05},
}


def model(**choices: Any) -> Any:
    return partial(linear, **({"mu": 1.5, "reading": Reading(), "descent": Descent()} | choices))


def fitted(X: Any, y: Any, relation: Neighbouring = Neighbouring.ZERO_OUT, seed: int = 0, **choices: Any) -> LinearFit:
    made = model(**choices)
    planned = plan(made, *X.shape, relation)
    found = run(made, Rows.held(X, y), relation, NoiseSource.insecure(seed), planned=planned)
    assert found.event == planned.event
    return found


def table(n: int = 3000, d: int = 4, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.geomspace(0.1, 100, d) + 7
    return X, X @ (1 / np.geomspace(0.1, 100, d)) + 0.5 * rng.normal(size=n) + 40


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("way", WAYS)
def test_worst_case_neighbours_differ_by_no_more_than_is_paid_for(way: str, relation: Neighbouring) -> None:
    made = model(**WAYS[way])

    def training(table: Table) -> Any:
        def train(tap: Any) -> Fitted:
            planned = plan(made, *table.X.shape, relation)
            rows = Rows.held(table.X, table.y)
            return Fitted(planned.event, run(made, rows, relation, tap(NoiseSource.secure()), planned=planned))

        return train

    tables = HostileTables(n=20, d=3, invalid=True)
    audit = audit_tables(training, tables, relation, pairs=24, rng=np.random.default_rng(0))
    assert not audit.alarm, audit.verdict
    assert audit.largest_ratio > 0.3


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [(30, 3), (5000, 3), (10**9, 3), (40, 3000)])
def test_a_plan_spends_the_budget_and_no_more(way: str, relation: Neighbouring, size: tuple[int, int]) -> None:
    choices = {"mu": 1.5} | WAYS[way]
    if way == "public scales":
        choices["reading"] = Reading(standardise=False)
    event = plan(model(**choices), *size, relation).event
    assert choices["mu"] * (1 - 1e-9) < account(event).mu <= choices["mu"]


def test_it_learns_and_says_how_well() -> None:
    X, y = table()
    found = fitted(X, y)
    fresh, target = table(seed=1)
    score = 1 - np.square(target - found.scores(fresh)[:, 0]).mean() / target.var()
    assert score > 0.9
    assert found.expected is not None
    assert found.expected.low - 0.02 < score < found.expected.high + 0.02


def test_what_is_computed_late_changes_no_release() -> None:
    """Eigenvectors and covariances are stand-ins in a plan."""
    X, y = table(400)
    covariance = fitted(X, y).noise_covariance
    assert covariance is not None
    assert (np.linalg.eigvalsh(covariance) > 0).all()


def test_the_noise_covariance_is_that_of_many_fits() -> None:
    """On public scales: those that a fit finds differ from fit to fit, and parameters with them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 3))
    y = X @ [1.0, -0.5, 0.2] + rng.normal(size=800)
    fits = [fitted(X, y, seed=seed, mu=1.0, reading=PUBLIC) for seed in range(80)]
    found = np.cov(np.array([fit.parameters[:, 0] for fit in fits]).T)
    ratio = np.sqrt(np.mean([np.diag(fit.noise_covariance) for fit in fits], axis=0) / np.diag(found))  # type: ignore[arg-type]
    assert ((0.7 < ratio) & (ratio < 1.4)).all(), ratio


def test_a_plan_of_many_columns_computes_no_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "whitening", lambda *_: pytest.fail("eigenvectors of a plan"))
    monkeypatch.setattr(module, "noise_covariance", lambda *_, **__: pytest.fail("a covariance of a plan"))
    tracemalloc.start()
    event = plan(model(), 10**7, 2048, Neighbouring.REPLACE_ONE).event
    assert tracemalloc.get_traced_memory()[1] < 400e6
    tracemalloc.stop()
    assert "second moments" in [leaf.label for leaf in event.leaves()]


def test_wide_tables_release_no_second_moments() -> None:
    assert second_moments_pay(100, 300.0)
    assert not second_moments_pay(300, 100.0)
    labels = [leaf.label for leaf in plan(model(mu=0.5), 60, 500, Neighbouring.ZERO_OUT).event.leaves()]
    assert "second moments" not in labels
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(400, 1))
    X = factor + rng.normal(size=(400, 1000))
    found = fitted(X, factor[:, 0], mu=1.0)
    assert found.noise_covariance is None
    assert np.corrcoef(found.scores(X)[:, 0], factor[:, 0])[0, 1] > 0.8


@pytest.mark.parametrize("columns", [3, 400])
def test_with_a_dozen_records_a_fit_is_the_mean(columns: int) -> None:
    X = np.random.default_rng(3).standard_normal((200, columns))
    assert np.ptp(fitted(X, X[:, 0], mu=10 / 200).scores(X)) == 0.0


def test_nothing_is_kept_of_slopes_that_noise_made() -> None:
    """James–Stein: a target without any relation to its columns."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 12)), rng.normal(size=400)
    spread = [np.std(fitted(X, y, seed=seed, mu=0.4).scores(X)) for seed in range(8)]
    assert np.mean(spread) < 0.35


def test_what_the_user_fixes_is_not_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_james_stein", lambda *_: pytest.fail("shrunk"))
    X, y = table(300)
    found = fitted(X, y, descent=Descent(steps=4, clip_norm=1.0, learning_rate=0.5))
    assert found.expected is None


@pytest.mark.parametrize("whitened", [True, False])
def test_it_learns_in_original_units(whitened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whitened:
        monkeypatch.setattr(module, "second_moments_pay", lambda *_: False)
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (20_000, 3)) * [1.0, 50.0, 1e-3] + [5.0, -300.0, 0.01]
    y = 100 + (X - [5.0, -300.0, 0.01]) @ [3.0, 0.1, 2000.0]
    found = fitted(X, y, mu=2.0)
    predicted = found.scores(X)[:, 0]
    assert np.square(y - predicted).mean() < 0.05 * y.var()
    slopes, intercept = found.original_units()
    inside = (np.abs(X - found.features.centre) < found.features.window).all(axis=1)
    np.testing.assert_allclose((X @ slopes + intercept)[inside, 0], predicted[inside], rtol=1e-8)


def test_public_maps_are_used_as_given() -> None:
    X = np.random.default_rng(2).standard_normal((4000, 2)) * 10
    features = Standardiser(np.zeros(2), np.full(2, 10.0), np.full(2, 30.0))
    found = fitted(X, X[:, 0] / 10, mu=1.0, reading=Reading(standardise=False, features=features))
    np.testing.assert_array_equal(found.features.scale, features.scale)
    np.testing.assert_array_equal(found.features.window, features.window)
    assert found.parameters[0, 0] == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("way", ["private scales", "given descent"])
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((200, 50)),
        np.full((200, 50), 1e300),
        np.full((200, 50), np.nan),
        np.random.default_rng(3).standard_normal((200, 50)),
        np.ones((1, 1)),
    ],
)
def test_degenerate_tables_give_finite_parameters(X: Any, way: str) -> None:
    found = fitted(X, np.ones(len(X)), Neighbouring.REPLACE_ONE, **({"mu": 0.27} | WAYS[way]))
    assert np.isfinite(found.parameters).all()
    assert all(np.isfinite(part).all() for part in found.original_units())


def test_a_wide_fit_stores_nothing_of_columns_squared_and_rows_twice_at_most() -> None:
    """8,000 columns squared would be 512 MB."""
    for shape, most in (((10, 8000), 50e6), ((1500, 2000), 8 * 24e6)):
        X = np.random.default_rng(4).standard_normal(shape)
        tracemalloc.start()
        fitted(X, X[:, 0], mu=0.3, reading=Reading(impute=True), descent=Descent(steps=2))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < min(most, fit_memory(*shape, second_moments=False))


@pytest.mark.parametrize("relation", RELATIONS)
def test_shares_move_without_jumps(relation: Neighbouring) -> None:
    """From one row to the next no part of the budget changes by more than a little."""

    def parts(n: int) -> Any:
        found: dict[str, float] = {}
        for leaf in plan(model(mu=0.25), n, 5, relation).event.leaves():
            name = leaf.label.split(":")[0]
            found[name] = found.get(name, 0.0) + (leaf_mu(leaf) / 0.25) ** 2
        return np.array(list(found.values()))

    shares = np.array([parts(n) for n in range(60, 1400, 12)])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.abs(np.diff(shares, axis=0)).max() < 0.1
    assert shares[0, 1] > 0.2 > 0.12 > shares[-1, 1], "few records pay for the target, many for the descent"


def test_predictions_stay_inside_the_targets_window() -> None:
    X = np.random.default_rng(9).standard_normal((3000, 2))
    found = fitted(X, 10 + X[:, 0], mu=1.0)
    far = found.scores(np.array([[1e9, 1e9], [-1e9, -1e9]]))[:, 0]
    assert (np.abs(far - found.target.centre) <= found.target.window).all()


def test_other_rows_than_planned_are_refused() -> None:
    recipe = Linear(Facts(rows=10, columns=2), Budget(mu=1.0, neighbouring=Neighbouring.ZERO_OUT), Reading())
    with pytest.raises(GratisError, match="plan was made for"):
        recipe.run(Rows.held(np.ones((9, 2)), np.ones(9)), noise=NoiseSource.insecure(0))
