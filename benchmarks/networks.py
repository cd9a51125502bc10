"""Cost of a private step of 784–1000–10 on a full batch, against a plain torch step and Opacus' ghost clipping.

    python benchmarks/networks.py [--quick] [--opacus /path/to/venv/bin/python] [--threads 2] [--repeats 7]

Time: medians of interleaved repeats in one process: wall clock, CPU of all threads, and CPU of the main thread. On a
busy machine the wall clock says little; with t free cores it would be about the larger of (main thread, CPU/t), which
is reported as "free". Set OMP_WAIT_POLICY=passive, or waiting counts as work.
Opacus runs in its own environment (it is no dependency), in turns with plain steps there, so that both ratios are to
the same plain step. Memory: peak resident size of a fresh process that does only that kind of step. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

WIDTHS = (784, 1000, 10)
RATE = 0.1
MICRO_BATCH = 2048


def plain_network() -> Any:
    return nn.Sequential(nn.Linear(784, 1000, bias=False), nn.ReLU(), nn.Linear(1000, 10, bias=False))


def problem(n: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, WIDTHS[0], generator=generator), torch.randint(WIDTHS[-1], (n,), generator=generator)


def plain_step(n: int, micro_batch: int | None = None) -> Callable[[], None]:
    X, y = problem(n)
    network = plain_network()
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE)
    size = micro_batch or n

    def step() -> None:
        optimiser.zero_grad()
        for start in range(0, n, size):
            rows = slice(start, start + size)
            (nn.functional.cross_entropy(network(X[rows]), y[rows], reduction="sum") / n).backward()
        optimiser.step()

    return step


def private_step(n: int) -> Callable[[], None]:
    from gratis.accounting.network_descent import network_descent_event
    from gratis.mechanisms.ghost_clipping import ClippedGradientSum
    from gratis.mechanisms.noise import NoiseSource
    from gratis.records.neighbouring import Neighbouring

    X, y = problem(n)
    network = plain_network()
    gradient = ClippedGradientSum(network, clip_norm=1.0, micro_batch=MICRO_BATCH)
    std = network_descent_event(n, 75, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE).noise_stds.values[0]
    noise = NoiseSource.secure()
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE)

    def step() -> None:
        released = noise.release(gradient(X, y) / n, std)
        for parameter, part in zip(gradient.parameters, gradient.split(released), strict=True):
            parameter.grad = part
        optimiser.step()

    return step


def opacus_step(n: int, micro_batch: int | None = None) -> Callable[[], None]:
    from opacus import PrivacyEngine

    X, y = problem(n)
    network = plain_network()
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=n)
    network, optimiser, criterion, _ = PrivacyEngine().make_private(
        module=network,
        optimizer=optimiser,
        criterion=nn.CrossEntropyLoss(),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode="ghost",
    )

    size = micro_batch or n

    def step() -> None:
        optimiser.zero_grad()
        for start in range(0, n, size):
            rows = slice(start, start + size)
            # Clipped sums add up until the step that is not skipped.
            optimiser.signal_skip_step(do_skip=start + size < n)
            criterion(network(X[rows]), y[rows]).backward()
            optimiser.step()
            optimiser.zero_grad()

    return step


KINDS: dict[str, Callable[[int], Callable[[], None]]] = {
    "plain": plain_step,
    "plain_micro": lambda n: plain_step(n, MICRO_BATCH),
    "private": private_step,
    "opacus": opacus_step,
    "opacus_micro": lambda n: opacus_step(n, MICRO_BATCH),
}


def interleaved(kinds: list[str], n: int, repeats: int, threads: int) -> dict[str, dict[str, float]]:
    """Median seconds of each kind of step by each clock."""
    steps = {kind: KINDS[kind](n) for kind in kinds}
    for step in steps.values():
        step()
    clocks = {"wall": time.perf_counter, "cpu": time.process_time, "main": time.thread_time}
    taken: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in kinds} for name in clocks}
    for _ in range(repeats):
        for kind, step in steps.items():
            start = {name: clock() for name, clock in clocks.items()}
            step()
            for name, clock in clocks.items():
                taken[name][kind].append(clock() - start[name])
    medians = {name: {k: statistics.median(v) for k, v in times.items()} for name, times in taken.items()}
    medians["free"] = {kind: max(medians["main"][kind], medians["cpu"][kind] / threads) for kind in kinds}
    return medians


def peak_megabytes(kind: str, n: int) -> float:
    step = KINDS[kind](n)
    step()
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(python: str, task: str, kinds: list[str], options: argparse.Namespace) -> Any:
    command = [python, str(Path(__file__).resolve()), "--task", task, "--kinds", *kinds, "--n", str(options.n)]
    command += ["--threads", str(options.threads), "--repeats", str(options.repeats)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n=10,000 instead of 50,000")
    parser.add_argument("--opacus", help="python of an environment with torch and opacus")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--n", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--task", choices=["time", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--kinds", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.n = options.n or (10_000 if options.quick else 50_000)
    torch.set_num_threads(options.threads)
    if options.task == "time":
        print(json.dumps(interleaved(options.kinds, options.n, options.repeats, options.threads)))
        return
    if options.task == "memory":
        print(json.dumps(peak_megabytes(options.kinds[0], options.n)))
        return
    times = child(sys.executable, "time", ["plain", "plain_micro", "private"], options)
    memory = {kind: child(sys.executable, "memory", [kind], options) for kind in ("plain", "plain_micro", "private")}
    report: dict[str, Any] = {
        "network": "784-1000-10",
        "n": options.n,
        "threads": options.threads,
        "seconds_per_step": times,
        "peak_megabytes": memory,
        "memory_private_over_plain": memory["private"] / memory["plain"],
        "memory_private_over_plain_in_micro_batches": memory["private"] / memory["plain_micro"],
    }
    for clock, seconds in times.items():
        report[f"private_over_plain_{clock}"] = seconds["private"] / seconds["plain"]
        report[f"private_over_plain_in_micro_batches_{clock}"] = seconds["private"] / seconds["plain_micro"]
    if options.opacus:
        theirs = child(options.opacus, "time", ["plain", "opacus", "opacus_micro"], options)
        report["opacus_seconds_per_step"] = theirs
        report["opacus_peak_megabytes"] = child(options.opacus, "memory", ["opacus_micro"], options)
        for clock, seconds in theirs.items():
            # Its faster way of doing the same work counts.
            ratio = min(seconds["opacus"], seconds["opacus_micro"]) / seconds["plain"]
            report[f"opacus_over_plain_{clock}"] = ratio
            report[f"opacus_over_private_{clock}"] = ratio / report[f"private_over_plain_{clock}"]
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
