import math
from dataclasses import dataclass

import numpy as np
import pytest

from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource
from gratis.models.linear import LinearModel
from gratis.models.logistic import SoftmaxModel
from gratis.specs.errors import GratisError
from gratis.specs.events import FullBatchDescent
from gratis.specs.neighbouring import Neighbouring
from gratis.training.staged import fit_stages, plan_stages

RELATIONS = list(Neighbouring)


@dataclass(frozen=True)
class Fixed:
    learning_rate: float = 0.4

    def clip_norm(self, effective_dimension):
        return math.sqrt(effective_dimension)


def fit(X, y, plan, seed=0, model=None, **options):
    return fit_stages(
        X, y, plan, model or LinearModel(), lambda spectrum, plan: Fixed(), noise=NoiseSource.insecure(seed), **options
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


def test_shape_must_be_the_planned_one():
    plan = plan_stages(10, 2, mu=1.0, neighbouring=Neighbouring.ZERO_OUT)
    with pytest.raises(GratisError, match="plan was made for"):
        fit(np.ones((9, 2)), np.ones(9), plan)
