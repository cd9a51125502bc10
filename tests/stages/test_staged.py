import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pytest

from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.generalised_linear import LinearModel
from gratis.models.logistic import SoftmaxModel
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.records.neighbouring import Neighbouring
from gratis.stages import staged
from gratis.stages.staged import check_memory, fit_stages, plan_stages

RELATIONS = list(Neighbouring)


@dataclass(frozen=True)
class Fixed:
    learning_rate: float = 0.4
    evidence: tuple = ()

    def clip_norm(self, effective_dimension):
        return math.sqrt(effective_dimension)


def fit(X, y, plan, seed=0, model=None, **options):
    return fit_stages(
        Rows.held(X, y),
        plan,
        model or LinearModel(),
        lambda spectrum, plan: Fixed(),
        noise=NoiseSource.insecure(seed),
        **options,
    )


def spent(plan):
    total = 0.0
    for leaf in plan.event.leaves():
        if isinstance(leaf, FullBatchDescent):
            step = leaf.neighbouring.sensitivity_factor * leaf.rounding_inflation / leaf.n_records
            total += leaf.steps * (step / leaf.noise_stds.values[0]) ** 2
        else:
            total += (leaf.sensitivity / leaf.noise_std) ** 2
    return math.sqrt(total)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("shape", [(5000, 5), (300, 80)])
@pytest.mark.parametrize("options", [{}, {"precondition": False}, {"standardise": False}, {"regression": False}])
def test_the_stages_spend_mu_and_no_more(relation, shape, options):
    plan = plan_stages(*shape, mu=0.3, neighbouring=relation, **options)
    assert spent(plan) <= 0.3
    assert spent(plan) == pytest.approx(0.3, rel=1e-9)


def test_the_event_is_known_before_the_data_and_does_not_depend_on_it():
    plan = plan_stages(400, 3, mu=0.5, neighbouring=Neighbouring.REPLACE_ONE)
    assert labels(plan) == {"features", "target", "second moments", "descent", "level of the predictions"}
    rng = np.random.default_rng(0)
    for X in (rng.standard_normal((400, 3)), np.full((400, 3), np.nan)):
        assert fit(X, X[:, 0], plan).event == plan.event


@pytest.mark.parametrize("precondition", [True, False])
def test_learns_in_original_units(precondition):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (20_000, 3)) * [1.0, 50.0, 1e-3] + [5.0, -300.0, 0.01]
    y = 100 + (X - [5.0, -300.0, 0.01]) @ [3.0, 0.1, 2000.0]
    plan = plan_stages(*X.shape, mu=2.0, neighbouring=Neighbouring.ZERO_OUT, precondition=precondition)
    found = fit(X, y, plan)
    predicted = found.scores(X)[:, 0]
    assert np.square(y - predicted).mean() < 0.05 * y.var()
    slopes, intercept = found.original_units()
    inside = (np.abs(X - found.features.centre) < found.features.window).all(axis=1)
    np.testing.assert_allclose((X @ slopes + intercept)[inside, 0], predicted[inside], rtol=1e-8)


def test_public_maps_are_used_as_given():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((4000, 2)) * 10
    plan = plan_stages(4000, 2, mu=1.0, neighbouring=Neighbouring.ZERO_OUT, standardise=False)
    features = Standardiser(np.zeros(2), np.full(2, 10.0), np.full(2, 30.0))
    found = fit(X, X[:, 0] / 10, plan, features=features)
    np.testing.assert_array_equal(found.features.scale, features.scale)
    np.testing.assert_array_equal(found.features.window, features.window)
    assert found.parameters[0, 0] == pytest.approx(1, abs=0.15)


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
def test_degenerate_tables_give_finite_parameters(X):
    for model, regression in ((LinearModel(), True), (SoftmaxModel(2), False)):
        plan = plan_stages(
            *X.shape, mu=0.27, neighbouring=Neighbouring.REPLACE_ONE, outputs=model.outputs, regression=regression
        )
        found = fit(X, np.ones(len(X)), plan, model=model)
        assert np.isfinite(found.parameters).all()
        assert all(np.isfinite(part).all() for part in found.original_units())


def labels(plan):
    return {leaf.label.split(":")[0].split(",")[0] for leaf in plan.event.leaves()}


@pytest.mark.parametrize("relation", RELATIONS)
def test_second_moments_are_left_out_where_they_say_nothing(relation):
    """The rule is κd > 1.5·nμ, from public facts alone; what is left out is not paid for."""
    narrow, wide = (plan_stages(2000, d, mu=0.3, neighbouring=relation) for d in (250, 20_000))
    assert labels(narrow) == {"features", "target", "second moments", "descent", "level of the predictions"}
    assert labels(wide) == {"features", "target", "descent", "level of the predictions"}
    assert wide.second_moments_mu == 0
    assert spent(wide) == pytest.approx(0.3, rel=1e-9)
    edge = round(1.5 * 2000 * 0.3 / relation.sensitivity_factor)
    moments = [plan_stages(2000, edge + off, mu=0.3, neighbouring=relation).second_moments for off in (-1, 1)]
    assert [found is None for found in moments] == [False, True]
    assert plan_stages(10**7, 20_000, mu=1.0, neighbouring=relation).second_moments is None, "would not be computed"


def test_a_wide_fit_stores_nothing_of_columns_squared():
    """8,000 columns squared would be 512 MB; the table itself is 0.6 MB."""
    import tracemalloc

    X = np.random.default_rng(4).standard_normal((10, 8000))
    plan = plan_stages(*X.shape, mu=0.3, neighbouring=Neighbouring.ZERO_OUT, steps=4)
    tracemalloc.start()
    fit(X, X[:, 0], plan)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6, "histograms, and a few copies of the table"


def test_rows_are_kept_twice_at_most():
    """A table, its standardised copy, and no more: 1,500 × 2,000 numbers are 24 MB."""
    import tracemalloc

    X = np.random.default_rng(4).standard_normal((1500, 2000))
    plan = plan_stages(*X.shape, mu=0.3, neighbouring=Neighbouring.ZERO_OUT, steps=2)
    assert plan.second_moments is None
    tracemalloc.start()
    fit_stages(
        Rows.held(X, X[:, 0]), plan, LinearModel(), lambda s, p: Fixed(), noise=NoiseSource.insecure(0), impute=True
    )
    with_chunks = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert with_chunks < plan.memory, "what is refused is at least what is used"
    assert with_chunks < 8 * X.nbytes


def test_memory_is_counted_from_public_sizes_and_refused_in_a_sentence(monkeypatch):
    plan = plan_stages(2000, 20_000, mu=0.3, neighbouring=Neighbouring.ZERO_OUT)
    assert 1e9 < plan.memory < 4e9
    forced = plan_stages(2000, 20_000, mu=0.3, neighbouring=Neighbouring.ZERO_OUT, precondition=True)
    assert forced.memory > 20e9
    monkeypatch.setattr(staged, "available_memory", lambda: 4 * 10**9)
    check_memory(plan)
    with pytest.raises(GratisError, match=r"2000 rows of 20000 columns need about .* 4\.0 GB .* nothing was spent"):
        check_memory(forced)
    monkeypatch.setattr(staged, "available_memory", lambda: None)
    check_memory(forced)


@pytest.mark.slow(but=["False-zero-out"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("sabotage", [False, True])
def test_replayed_releases_of_a_wide_fit_differ_by_less_than_is_paid_for(relation, sabotage, monkeypatch):
    """Run D, then its neighbour with the same outputs; the values before noise may differ by μ deviations in all."""
    if sabotage:
        from gratis.mechanisms import clipped_gradient

        monkeypatch.setattr(clipped_gradient, "row_norms", lambda X: np.full(len(X), 1e-3))
        monkeypatch.setattr("gratis.stages.full_batch.row_norms", lambda X: np.full(len(X), 1e-3))
    rng = np.random.default_rng(6)
    n, d, mu, worst = 12, 40, 2.0, 0.0
    plan = plan_stages(n, d, mu=mu, neighbouring=relation, steps=5, precondition=False)
    for hostile in (1e3, 1e-3, 1e200, 1e308, np.inf, np.nan, 0.0):
        X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
        X2, y2 = X.copy(), y.copy()
        X[0], y[0] = rng.choice([-1, 1], d) * 1e2, 1e2
        # Zero-out: the neighbour's record is the one that contributes nothing.
        X2[0] = np.nan if relation is Neighbouring.ZERO_OUT else hostile
        y2[0] = np.nan if relation is Neighbouring.ZERO_OUT else -hostile
        recorded = Recording(NoiseSource.insecure(7))
        fit_stages(Rows.held(X, y), plan, LinearModel(), lambda s, p: Fixed(), noise=recorded)
        replayed = Recording(NoiseSource.insecure(7), recorded.outputs)
        fit_stages(Rows.held(X2, y2), plan, LinearModel(), lambda s, p: Fixed(), noise=replayed)
        pairs = zip(recorded.values, replayed.values, recorded.stds, strict=True)
        moved = sum(float(np.square((a - b) / std).sum()) for a, b, std in pairs)
        worst = max(worst, math.sqrt(moved))
    assert (worst > mu) if sabotage else (0.2 * mu < worst <= mu * (1 + 1e-9))


class Recording:
    """A noise source that keeps the values before noise, and answers with given outputs."""

    def __init__(self, source, outputs=None):
        self.source, self.given = source, outputs
        self.values, self.stds, self.outputs = [], [], []

    def release(self, values, std):
        exact = np.where(np.isfinite(values), values, 0.0)
        made = self.source.release(values, std) if self.given is None else self.given[len(self.values)]
        self.values.append(exact)
        self.stds.append(std)
        self.outputs.append(made)
        return made


def test_shape_must_be_the_planned_one():
    plan = plan_stages(10, 2, mu=1.0, neighbouring=Neighbouring.ZERO_OUT)
    with pytest.raises(GratisError, match="plan was made for"):
        fit(np.ones((9, 2)), np.ones(9), plan)


@pytest.mark.parametrize("relation", RELATIONS)
def test_shares_move_without_jumps(relation):
    """From one row to the next no stage's part of the budget changes by more than a little."""

    def parts(n):
        plan = plan_stages(n, 5, mu=0.25, neighbouring=relation)
        square = {"descent": plan.descent_mu**2, "moments": plan.second_moments_mu**2}
        for name in ("features", "target"):
            square[name] = sum((e.sensitivity / e.noise_std) ** 2 for e in getattr(plan, name).events)
        square["level"] = (plan.level.sensitivity / plan.level.noise_std) ** 2
        return np.array(list(square.values())) / 0.25**2

    sizes = range(60, 1400, 3)
    shares = np.array([parts(n) for n in sizes])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.abs(np.diff(shares, axis=0)).max() < 0.03
    assert shares[0, -1] > 0.2 > 0.05 > shares[-1, -1], "few records pay for the level, many for the descent"


def test_predictions_stay_inside_the_targets_window():
    rng = np.random.default_rng(9)
    X = rng.standard_normal((3000, 2))
    plan = plan_stages(*X.shape, mu=1.0, neighbouring=Neighbouring.ZERO_OUT)
    found = fit(X, 10 + X[:, 0], plan)
    far = found.scores(np.array([[1e9, 1e9], [-1e9, -1e9]]))[:, 0]
    assert (np.abs(far - found.target.centre) <= found.target.window).all()
    steep = dataclasses.replace(found, parameters=found.parameters * 1e6)
    assert (np.abs(steep.scores(X)[:, 0] - found.target.centre) <= found.target.window * (1 + 1e-12)).all()


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("precondition", [True, False])
def test_with_a_dozen_records_a_fit_is_the_mean(relation, precondition):
    """Not even the scales of columns are known there; with three dozen it is what was fitted, in between a part."""
    kappa = relation.sensitivity_factor
    kept = [plan_stages(1000, 3, mu=kappa * N / 1000, neighbouring=relation).kept for N in (5, 12, 16, 24, 36, 500)]
    assert kept == sorted(kept)
    assert (kept[1], kept[-2], kept[-1]) == (0.0, 1.0, 1.0)
    X = np.random.default_rng(3).standard_normal((200, 3))
    plan = plan_stages(*X.shape, mu=kappa * 10 / 200, neighbouring=relation, precondition=precondition)
    found = fit(X, X[:, 0], plan)
    assert np.ptp(found.scores(X)) == 0.0
