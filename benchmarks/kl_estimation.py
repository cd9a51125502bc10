"""Cost of the KL of all neighbours in one step, against a plain forward and backward pass of the same records.

    python benchmarks/kl_estimation.py [--quick] [--repeats 3] [--threads 1]

CIFAR-like shapes: d = 3072, depth 10, two classes, width 1024 with 10,000 + 2,000 records (--quick: width 256, 1,000 +
200; contents do not matter for time, so records are random). Interleaved medians in one process. "kept": layer values
of the first pass are kept; "again": nothing is kept and layers are computed twice, memory bounded by micro-batches.
Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gratis.planning.bounds.initialization import layer_variances, layer_widths
from gratis_papers.noisy_gd import _squared_gaps
from gratis_papers.relu_network import ReluNetwork, softmax_residual

MICRO_BATCH = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    width, records, added = (256, 1000, 200) if arguments.quick else (1024, 10_000, 2000)
    widths = layer_widths(3072, width, 10, 2)
    generator = torch.Generator().manual_seed(0)

    def data(count: int) -> tuple[Any, Any]:
        return torch.randn(count, 3072, generator=generator), torch.randint(2, (count,), generator=generator)

    first, second = data(records), data(added)
    rows, labels = (torch.cat(pair) for pair in zip(first, second, strict=True))
    network = ReluNetwork(widths, layer_variances("he", widths), generator=generator)
    layers: list[Any] = []
    for weight in network.weights:
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight.data.copy_(weight)
        layers += [layer, nn.ReLU()]
    plain = nn.Sequential(*layers[:-1])

    def forward_backward() -> None:
        plain.zero_grad()
        for X, y in (first, second):
            for i in range(0, len(X), MICRO_BATCH):
                scores = plain(X[i : i + MICRO_BATCH])
                nn.functional.cross_entropy(scores, y[i : i + MICRO_BATCH], reduction="sum").backward()

    @torch.no_grad()
    def kept() -> None:
        _squared_gaps(network, rows, labels, records, softmax_residual, MICRO_BATCH, 2**33)

    @torch.no_grad()
    def again() -> None:
        _squared_gaps(network, rows, labels, records, softmax_residual, MICRO_BATCH, 0)

    kinds: dict[str, Callable[[], None]] = {"plain": forward_backward, "again": again, "kept": kept}
    walls: dict[str, list[float]] = {name: [] for name in kinds}
    cpus: dict[str, list[float]] = {name: [] for name in kinds}
    peaks: dict[str, float] = {}
    for _ in range(arguments.repeats):
        for name, step in kinds.items():
            wall, cpu = time.perf_counter(), time.process_time()
            step()
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(time.process_time() - cpu)
            peaks.setdefault(name, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
    median = {name: statistics.median(values) for name, values in cpus.items()}
    print(
        json.dumps(
            {
                "widths": list(widths),
                "records": records,
                "addable": added,
                "threads": arguments.threads,
                "cpu_seconds": median,
                "wall_seconds": {name: statistics.median(values) for name, values in walls.items()},
                "ratio_kept": median["kept"] / median["plain"],
                "ratio_again": median["again"] / median["plain"],
                "limit": 3.0,
                "peak_gigabytes_so_far": peaks,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
