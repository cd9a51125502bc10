"""The subsampled trainer on its worst-case neighbours: within what its accountant proves, and sabotages are seen.

One step releases B + σz with B ~ Bernoulli(q) where the record is there, and σz where it is nothing: the pair that the
privacy loss distribution of a subsampled Gaussian is about, so that the likelihood ratio grows with the output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

torch = pytest.importorskip("torch")
pytest.importorskip("dp_accounting")

from gratis.accounting import account, delta_upper_bound  # noqa: E402
from gratis.audits.distinguishing import audit_scores  # noqa: E402
from gratis.audits.runs import run_trainings  # noqa: E402
from gratis.mechanisms.ghost_clipping import ClippedGradientSum  # noqa: E402
from gratis.mechanisms.noise import NoiseSource  # noqa: E402
from gratis.records.events import PoissonSubsampledGaussian  # noqa: E402
from gratis.stages.networks import train_poisson  # noqa: E402
from gratis.stages.poisson_sampling import PoissonSampling  # noqa: E402

RECORDS, RUNS = 4, 800


def squared(outputs: Any, targets: Any) -> Any:
    return 0.5 * (outputs[:, 0] - targets) ** 2


class HalfNoise(NoiseSource):
    def normal(self, std: float, shape: Any) -> Any:
        return super().normal(std / 2, shape)


class Everyone(PoissonSampling):
    """Accounts for sampling and takes all records."""

    def batches(self, noise: NoiseSource) -> Any:
        return (np.arange(self.n_records) for _ in range(self.event.steps))


def trainer(target: float, sampling: PoissonSampling, source: Any, seed: int) -> Any:
    """The first record pushes along the first axis with a full clipped gradient; the others are zero."""
    X, y = np.zeros((RECORDS, 2), dtype=np.float32), np.zeros(RECORDS, dtype=np.float32)
    X[0, 0], y[0] = 1.0, target

    def train(i: int) -> np.ndarray:
        module = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.zeros_(module.weight)
        train_poisson(
            module, X, y, sampling=sampling, clip_norm=1.0, learning_rates=1.0, noise=source.insecure(seed + i),
            loss=squared,
        )  # fmt: skip
        return module.weight.detach().numpy()[0, :1]

    return train


def advantages(steps: int = 1, source: Any = NoiseSource, kind: Any = PoissonSampling, runs: int = RUNS) -> Any:
    """Return δ at ε = 0 (the advantage of the best test) under zero-out: from below by runs, from above by proof.

    The event has no Gaussian curve, so what is compared is the sum of both errors, which the audit bounds without any
    assumption and states as the μ of the curve that allows it: α + β = 2Φ(−μ/2).
    """
    event = PoissonSubsampledGaussian(sampling_rate=0.5, noise_multiplier=0.5, steps=steps, neighbouring="zero-out")
    sampling = kind(RECORDS, event)
    pair = tuple(trainer(target, sampling, source, seed) for target, seed in ((np.nan, 10**6), (1e6, 2 * 10**6)))
    without, pushed = run_trainings(pair, runs)
    found = audit_scores(without[:, 0], pushed[:, 0], proved_mu=float("inf"))
    return 1 - 2 * float(ndtr(-found.mu.low / 2)), delta_upper_bound(account(event), epsilon=0.0)


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the module on synthetic records takes most of the time of so small a training."""
    monkeypatch.setattr(ClippedGradientSum, "check", lambda *_: None)


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
def test_an_honest_training_stays_below_what_is_proved_and_comes_near() -> None:
    """An honest alarm has 5 %. Errors of 1,280 judged runs are known to .013, so the advantage to 8 % of itself around
    87 % of the proof: below 60 % in less than one run in a thousand."""
    audited, proved = advantages()
    assert 0.6 * proved < audited <= proved


@pytest.mark.statistical(failure=1e-3)
@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"source": HalfNoise}, {"kind": Everyone}], ids=["half the noise", "no sampling"])
def test_a_fault_is_caught(fault: dict[str, Any]) -> None:
    audited, proved = advantages(**fault)
    assert audited > proved
