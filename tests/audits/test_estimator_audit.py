"""`gratis.audit`: one call for an estimator, a plan or a model file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gratis
from gratis.records.errors import GratisError

FILES = Path(__file__).parent.parent / "estimators" / "files_0_1_0"


@pytest.mark.slow(but=["estimator"])
@pytest.mark.parametrize(
    "target",
    [
        gratis.DPLogisticRegression(epsilon=1.0, delta=1e-5, preprocessing="none"),
        gratis.plan("linear", rows=40, columns=2, epsilon=1.0, delta=1e-5, algorithm="one-pass"),
        FILES / "linear.gratis",
    ],
    ids=["estimator", "plan", "file"],
)
def test_targets(target: object) -> None:
    found = gratis.audit(target, pairs=3)
    assert found.pairs >= 3
    assert not found.alarm
    assert 0 < found.largest_ratio <= 1


@pytest.mark.slow
def test_an_estimator_that_forgets_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: half the noise is twice the certified ratio."""
    from gratis.mechanisms.noise import NoiseSource

    kept = NoiseSource.release
    monkeypatch.setattr(NoiseSource, "release", lambda self, values, std: kept(self, values, std / 4))
    model = gratis.DPLinearRegression(epsilon=1.0, delta=1e-5, preprocessing="none")
    assert gratis.audit(model, pairs=10).alarm


def test_other_things_are_refused() -> None:
    for target in (np.zeros(3), "nowhere.gratis", gratis.Budget(mu=1.0)):
        with pytest.raises(GratisError):
            gratis.audit(target)
