"""One process of a distributed training: python rank_of_loop.py RANK SIZE FOLDER; writes what it saw to FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gratis
from gratis.accounting import verify_certificate
from gratis.models.mlp import build_mlp
from gratis.records.budget import Budget
from gratis.records.errors import GratisError

RECORDS, STEPS, CLIP = 1500, 3, 0.5


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((RECORDS, 8)).astype(np.float32), rng.integers(3, size=RECORDS)


def train(rows: slice, **settings: Any) -> tuple[Any, list[np.ndarray], np.ndarray]:
    X, y = problem()
    module = build_mlp([8, 6, 3], seed=1)
    budget = Budget(epsilon=8.0, delta=1e-5)
    given = {"budget": budget, "steps": STEPS, "clip_norm": CLIP, "noise_seed": 0, "insecure_reproducible": True}
    loop = gratis.privatise(module, X[rows], y[rows], **given | settings)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    gradients = []
    for _ in loop:
        gradients.append(np.concatenate([p.grad.double().flatten().numpy() for p in module.parameters()]))
        optimiser.step()
    weights = np.concatenate([p.detach().double().flatten().numpy() for p in module.parameters()])
    return loop, gradients, weights


def main() -> None:
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    rows = slice(RECORDS * rank // size, RECORDS * (rank + 1) // size)
    said: dict[str, Any] = {}
    books = {"ledger": gratis.Ledger.open(folder / "ledger"), "dataset": "people", "distributed": True}
    loop, gradients, weights = train(rows, **books)
    said["gradients"], said["weights"] = [g.tolist() for g in gradients], weights.tolist()
    if rank == 0:
        said["problems"] = verify_certificate(loop.certificate)
        said["assumptions"] = loop.certificate.assumptions
        said["records"] = loop.event.n_records
    loop, _, weights = train(rows, distributed=True, batch_size=300, noise_multiplier=2.0)
    said["sampled"] = weights.tolist()
    for name, other in (
        ("clip norms", {"clip_norm": 1.0 + rank}),
        ("a refusal of one", {"clip_norm": -1.0 if rank else 1.0}),
        ("the ledger's refusal", books),  # the budget is spent
    ):
        try:
            train(rows, **{"distributed": True} | other)
        except GratisError as error:
            said[name] = str(error)
    (folder / f"rank{rank}.json").write_text(json.dumps(said), encoding="utf-8")
    torch.distributed.barrier()  # who leaves early tears down connections that the other still uses
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
