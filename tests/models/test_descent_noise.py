"""The noise that a descent leaves in what it ends with: closed form against runs, and in the units of the table."""

from __future__ import annotations

import numpy as np
import pytest

from gratis import DPLinearRegression, load_model, save_model
from gratis.estimators.coefficient_table import coefficient_table
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.descent_noise import averaged_noise, curvature_left
from gratis.models.generalised_linear import LinearModel
from gratis.records.neighbouring import Neighbouring
from gratis.stages.full_batch import descend


def test_the_closed_form_is_the_variance_of_simulated_descents():
    rng, spectrum, rate, std, steps = np.random.default_rng(0), np.array([0.1, 0.5, 1.0]), 0.7, 0.2, 15
    place, kept = np.zeros((40_000, 3)), np.zeros((40_000, 3))
    for step in range(steps):
        place = (1 - rate * spectrum) * place + rate * std * rng.standard_normal(place.shape)
        kept += place / 8 if step >= steps - 8 else 0.0
    found = averaged_noise(spectrum, learning_rate=rate, noise_std=std, steps=steps)
    assert found == pytest.approx(kept.var(axis=0), rel=0.05)


@pytest.mark.parametrize("clip_norm", [0.3, 100.0])
def test_clipped_gradients_leave_more_noise_and_the_iterates_tell_how_much(clip_norm):
    """With a clip of a tenth of a gradient's length nine tenths of the curvature are gone; else nothing changes."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((2000, 6))
    rows, spectrum = Rows.held(X, X[:, 0] + rng.standard_normal(2000)), np.ones(6)
    runs = [
        descend(rows, LinearModel(), steps=64, clip_norm=clip_norm, learning_rate=0.2, mu=0.5,
                neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(seed), keep_path=True)
        for seed in range(40)
    ]  # fmt: skip
    known = {"learning_rate": 0.2, "noise_std": clip_norm * runs[0].event.noise_stds.values[0]}
    felt = np.array([curvature_left(run.path[:, :, 0], spectrum, **known) for run in runs])
    found = np.var([run.parameters[:, 0] for run in runs], axis=0, ddof=1).mean()
    stated = np.mean([averaged_noise(share * spectrum, steps=64, **known).mean() for share in felt])
    assert 0.6 * stated < found < 1.6 * stated
    unclipped = averaged_noise(spectrum, steps=64, **known).mean()
    assert (found > 3 * unclipped) == (clip_norm < 1)  # so the first line would fail without the share


@pytest.mark.statistical(failure=0.02)
@pytest.mark.slow
def test_fits_to_the_same_rows_differ_as_much_as_stated(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((4000, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 1.0]
    y = X @ [1.0, 0.1, 5.0] + rng.standard_normal(4000)
    models = [
        DPLinearRegression(1.0, 1e-5, noise_seed=seed, insecure_reproducible=True).fit(X, y) for seed in range(24)
    ]
    found = np.array([[model.intercept_, *model.coef_] for model in models]).std(axis=0)
    stated = np.sqrt(np.mean([np.diag(model.noise_covariance_) for model in models], axis=0))
    assert ((found[1:] > 0.6 * stated[1:]) & (found[1:] < 1.8 * stated[1:])).all(), found / stated
    model = models[0]
    table = coefficient_table(model)
    assert table.headings == ("", "coef", "privacy noise")
    assert [line[0] for line in table.lines] == ["const", "x1", "x2", "x3"]
    save_model(tmp_path / "m.gratis", model)
    loaded = load_model(tmp_path / "m.gratis").estimator
    assert (loaded.noise_covariance_ == model.noise_covariance_).all()
    assert coefficient_table(loaded) == table
    richer = DPLinearRegression(8.0, 1e-5, noise_seed=0, insecure_reproducible=True).fit(X, y)
    assert (np.diag(richer.noise_covariance_) < np.diag(model.noise_covariance_)).all()
