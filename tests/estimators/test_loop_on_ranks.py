"""Two processes train as one does, within the bound that the rounding proof pays for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

torch = pytest.importorskip("torch")
pytest.importorskip("dp_accounting")
if not torch.distributed.is_available():
    pytest.skip("this torch has no distributed processes", allow_module_level=True)

import gratis  # noqa: E402
from gratis.accounting import account, delta_upper_bound  # noqa: E402
from gratis.audits.distinguishing import audit_scores  # noqa: E402
from gratis.numerics.network_rounding import network_rounding_inflation  # noqa: E402
from gratis.records.budget import Budget  # noqa: E402
from gratis.records.events import PoissonSubsampledGaussian  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from rank_of_audit import MU, RATE, SIGMA  # noqa: E402
from rank_of_loop import CLIP, RECORDS, train  # noqa: E402

RANKS = 2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    gratis.Ledger.create(folder / "ledger", {"people": Budget(epsilon=8.0, delta=1e-5)})
    program = Path(__file__).with_name("rank_of_loop.py")
    running = [
        subprocess.Popen([sys.executable, str(program), str(rank), str(RANKS), str(folder)]) for rank in range(RANKS)
    ]
    assert [process.wait() for process in running] == [0] * RANKS
    status = gratis.Ledger.open(folder / "ledger").status("people")
    assert (status.reservations, status.never_committed) == (1, ())
    return [json.loads((folder / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(RANKS)]


def test_two_processes_equal_one_within_the_bound_of_the_proof(ranks: list[dict[str, Any]]) -> None:
    _, gradients, weights = train(slice(None))  # the same noise: seed 0 is rank 0's
    apart = np.linalg.norm(np.subtract(ranks[0]["gradients"][0], gradients[0]))
    # Both sums err by at most half of what the inflation adds to the sensitivity 2C, here over n.
    allowed = (network_rounding_inflation(RECORDS, sensitivity=2.0) - 1) * 2 * CLIP / RECORDS
    assert apart <= allowed
    np.testing.assert_allclose(ranks[0]["weights"], weights, atol=1e-5)
    # Negative control: half of the records make another gradient than that.
    half = train(slice(RECORDS // 2))[1][0]
    assert np.linalg.norm(half - gradients[0]) > allowed


def test_all_ranks_hold_the_same_bits_and_rank_0_the_books(ranks: list[dict[str, Any]]) -> None:
    for kind in ("gradients", "weights", "sampled"):
        assert ranks[0][kind] == ranks[1][kind]
    assert ranks[0]["problems"] == []
    assert "trusted-ranks" in ranks[0]["assumptions"]
    assert ranks[0]["records"] == RECORDS


def test_a_refusal_reaches_every_rank(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "different settings" in rank["clip norms"]
        assert "clip_norm" in rank["a refusal of one"]
        assert "nothing was reserved" in rank["the ledger's refusal"]


@pytest.mark.statistical(failure=0.05)
def test_two_ranks_told_apart_by_what_they_release(tmp_path: Path) -> None:
    """The worst case of one step, its record on the rank that draws no noise: 80 % of the proof, no more than it."""
    program = Path(__file__).with_name("rank_of_audit.py")
    running = [
        subprocess.Popen([sys.executable, str(program), str(rank), str(RANKS), str(tmp_path)]) for rank in range(RANKS)
    ]
    assert [process.wait() for process in running] == [0] * RANKS
    said = json.loads((tmp_path / "draws.json").read_text(encoding="utf-8"))
    honest = audit_scores(*map(np.array, said["NoiseSource"]), proved_mu=MU)
    assert not honest.alarm
    assert honest.mu.low > 0.8 * MU
    assert audit_scores(*map(np.array, said["HalfNoise"]), proved_mu=MU).alarm  # the negative control
    # With Poisson batches: the advantage of the best test, which is δ at ε = 0.
    event = PoissonSubsampledGaussian(sampling_rate=RATE, noise_multiplier=SIGMA, steps=1, neighbouring="zero-out")
    proved = delta_upper_bound(account(event), epsilon=0.0)

    def advantage(kind: str) -> float:
        found = audit_scores(*map(np.array, said[f"Poisson {kind}"]), proved_mu=float("inf"))
        return 1 - 2 * float(ndtr(-found.mu.low / 2))

    assert 0.6 * proved < advantage("NoiseSource") <= proved
    assert advantage("HalfNoise") > proved
