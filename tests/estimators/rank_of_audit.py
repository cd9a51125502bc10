"""One process of an audited training: python rank_of_audit.py RANK SIZE FOLDER; rank 0 writes what was released.

Records of the worst case lie on two ranks, and nobody moves the weights, so that every step is an independent draw of
the same one. Under each name: the gradient's first entry at every step, without and with the record.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import gratis
from gratis.estimators import own_loop
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget

RECORDS, DRAWS, MU = 4, 600, 2.0  # of one step; two samples of 600 show nine tenths of it
RATE, SIGMA, SAMPLED = 0.75, 0.5, 400  # of Poisson batches, which every rank draws of its own records


class HalfNoise(NoiseSource):
    """The sabotage."""

    def normal(self, std: float, shape: Any) -> Any:
        return super().normal(std / 2, shape)


def squared(outputs: Any, targets: Any) -> Any:
    return 0.5 * (outputs[:, 0] - targets) ** 2


def draws(rows: slice, target: float, source: NoiseSource, steps: int = DRAWS, **sampling: float) -> list[float]:
    records, targets = np.zeros((RECORDS, 2), dtype=np.float32), np.zeros(RECORDS, dtype=np.float32)
    records[-1, 0], targets[-1] = 1.0, target  # the last record: on the last rank, which draws no noise
    own_loop.noise_source = lambda *_, **__: source  # type: ignore[attr-defined]
    module = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(module.weight)
    budget = Budget(mu=MU * math.sqrt(steps), neighbouring="zero-out")
    if sampling:  # what one step costs is compared: the budget is none
        budget = Budget(epsilon=1.0, delta=1e-5, neighbouring="zero-out")
        own_loop.epsilon_upper_bound = lambda *_, **__: 0.0  # type: ignore[attr-defined]
    loop = gratis.privatise(
        module, records[rows], targets[rows], budget=budget, steps=steps, clip_norm=1.0, loss=squared,
        distributed=True, **sampling,
    )  # fmt: skip
    return [-module.weight.grad[0, 0].item() for _ in loop]


def main() -> None:
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    rows = slice(RECORDS * rank // size, RECORDS * (rank + 1) // size)
    said = {
        kind.__name__: [draws(rows, target, kind.insecure(seed)) for seed, target in ((1, math.nan), (2, 1e6))]
        for kind in (NoiseSource, HalfNoise)
    }
    said |= {
        f"Poisson {kind.__name__}": [
            draws(rows, target, kind.insecure(seed + rank), SAMPLED, batch_size=RATE * RECORDS, noise_multiplier=SIGMA)
            for seed, target in ((10, math.nan), (20, 1e6))
        ]
        for kind in (NoiseSource, HalfNoise)
    }
    if rank == 0:
        (folder / "draws.json").write_text(json.dumps(said), encoding="utf-8")
    torch.distributed.barrier()  # who leaves early tears down connections that the other still uses
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
