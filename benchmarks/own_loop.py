"""Opacus' own MNIST example (its SampleConvNet, SGD, C = 1) in a loop of `gratis.privatise`, beside Opacus itself.

    python benchmarks/own_loop.py --opacus /path/to/venv/bin/python [--steps 240] [--batch 256] [--epsilon 1]
    python benchmarks/own_loop.py --ranks 1 2 4

Each training is a process of its own: accuracy on the 10,000 test images, CPU seconds of the loop, peak resident size.
The same architecture, initial weights, rate, momentum, steps and expected batch size; each side finds its own noise
multiplier for (ε, 1e-5), both for Poisson batches where a record is there or is not (zero-out here, add-remove there).
Rate and momentum were fixed before the first run and tuned for neither side. Opacus runs in its own environment (it is
no dependency). `--ranks` compares the first gradient of several processes with that of one. Prints JSON.
Data: `GRATIS_DATA`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

RATE, MOMENTUM, CLIP, DELTA = 0.25, 0.5, 1.0, 1e-5


def images(kind: str) -> tuple[Any, Any]:
    folder = Path(os.environ["GRATIS_DATA"]) / "mnist"
    with gzip.open(folder / f"{kind}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / f"{kind}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    # The public mean and deviation that the example uses.
    scaled = (torch.from_numpy(pixels.astype(np.float32)) / 255 - 0.1307) / 0.3081
    return scaled, torch.from_numpy(labels.astype(np.int64))


def network(seed: int) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def optimiser_of(module: Any) -> Any:
    return torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)


def train_ours(
    module: Any, X: Any, y: Any, options: argparse.Namespace
) -> tuple[Callable[[], None], Callable[[], Any]]:
    import gratis

    budget = gratis.Budget(epsilon=options.epsilon, delta=DELTA, neighbouring="zero-out")
    loop = gratis.privatise(
        module, X, y, budget=budget, steps=options.steps, batch_size=options.batch, clip_norm=CLIP,
        noise_multiplier=options.noise,
    )  # fmt: skip
    optimiser = optimiser_of(module)

    def run() -> None:
        for _ in loop:
            optimiser.step()

    return run, lambda: (loop.event.noise_multiplier, loop.certificate.guarantee["epsilon"])


def train_opacus(
    module: Any, X: Any, y: Any, options: argparse.Namespace
) -> tuple[Callable[[], None], Callable[[], Any]]:
    from opacus import PrivacyEngine
    from opacus.accountants.utils import get_noise_multiplier

    rate = options.batch / len(X)
    sigma = options.noise or get_noise_multiplier(
        target_epsilon=options.epsilon, target_delta=DELTA, sample_rate=rate, steps=options.steps, accountant="prv"
    )
    engine = PrivacyEngine(accountant="prv")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=options.batch)
    ghost = {"criterion": nn.CrossEntropyLoss(), "grad_sample_mode": "ghost"} if options.mode == "ghost" else {}
    made = engine.make_private(
        module=module, optimizer=optimiser_of(module), data_loader=loader, noise_multiplier=sigma, max_grad_norm=CLIP,
        **ghost,
    )  # fmt: skip
    wrapped, optimiser, *criterion, loader = made
    loss = criterion[0] if criterion else nn.CrossEntropyLoss()
    steps = 0

    def run() -> None:
        nonlocal steps
        while steps < options.steps:
            for records, labels in loader:
                optimiser.zero_grad()
                loss(wrapped(records), labels).backward()
                optimiser.step()
                steps += 1
                if steps == options.steps:
                    return

    return run, lambda: (sigma, engine.get_epsilon(DELTA))


def train_plain(
    module: Any, X: Any, y: Any, options: argparse.Namespace
) -> tuple[Callable[[], None], Callable[[], Any]]:
    optimiser = optimiser_of(module)

    def run() -> None:
        for _ in range(options.steps):
            rows = torch.randint(len(X), (options.batch,))
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(X[rows]), y[rows]).backward()
            optimiser.step()

    return run, lambda: (0.0, None)


TRAININGS = {"gratis": train_ours, "opacus": train_opacus, "plain": train_plain}


def one(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    X, y = images("train")
    module = network(options.seed)
    run, proved = TRAININGS[options.side](module, X, y, options)
    # What a training holds beyond the data and the library.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    run()
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sigma, epsilon = proved()
    tests, labels = images("t10k")
    with torch.no_grad():
        found = torch.cat([module(part).argmax(1) for part in tests.split(1000)])
    accuracy = (found == labels).double().mean().item()
    return {
        "accuracy": accuracy, "cpu_seconds": seconds, "peak_megabytes": peak, "megabytes_before": before,
        "noise_multiplier": sigma, "epsilon": epsilon,
    }  # fmt: skip


def rank(options: argparse.Namespace) -> dict[str, Any]:
    """One process of several: the first gradient, with noise from a seed, on its own part of 20,000 images."""
    import gratis

    torch.set_num_threads(1)
    place, size = options.rank
    torch.distributed.init_process_group("gloo", init_method=f"file://{options.store}", rank=place, world_size=size)
    X, y = (part[:20_000] for part in images("train"))
    rows = slice(len(X) * place // size, len(X) * (place + 1) // size)
    module = network(0)
    loop = gratis.privatise(
        module, X[rows], y[rows], budget=gratis.Budget(epsilon=options.epsilon, delta=DELTA), steps=4, clip_norm=CLIP,
        noise_seed=0, insecure_reproducible=True, distributed=True, micro_batch=512,
    )  # fmt: skip
    optimiser = optimiser_of(module)
    first, start = None, time.process_time()
    for _ in loop:
        if first is None:
            first = np.concatenate([p.grad.double().flatten().numpy() for p in module.parameters()])
        optimiser.step()
    seconds = (time.process_time() - start) / 4
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    weights = np.concatenate([p.detach().double().flatten().numpy() for p in module.parameters()])
    torch.distributed.destroy_process_group()
    assert first is not None
    return {"first": first.tolist(), "weights": weights.tolist(), "cpu_seconds_per_step": seconds, "peak": peak}


def child(python: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([python, __file__, *arguments], stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return dict(json.loads(text.splitlines()[-1]))


def compare_ranks(options: argparse.Namespace) -> dict[str, Any]:
    from gratis.numerics.network_rounding import network_rounding_inflation

    found: dict[str, Any] = {}
    reference: dict[str, Any] = {}
    for size in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            store = ["--store", f"{folder}/store", "--epsilon", str(options.epsilon)]
            processes = [child(sys.executable, "--rank", str(r), str(size), *store) for r in range(size)]
            said = [answer(process) for process in processes]
        reference = reference or said[0]
        found[str(size)] = {
            "distance_of_first_gradient": float(np.linalg.norm(np.subtract(said[0]["first"], reference["first"]))),
            "distance_of_weights_after_4_steps": float(
                np.linalg.norm(np.subtract(said[0]["weights"], reference["weights"]))
            ),
            "same_bits_on_all_ranks": all(one["weights"] == said[0]["weights"] for one in said),
            "cpu_seconds_per_step_and_rank": [round(one["cpu_seconds_per_step"], 3) for one in said],
            "peak_megabytes": [round(one["peak"]) for one in said],
        }
    found["allowed"] = (network_rounding_inflation(20_000, sensitivity=2.0) - 1) * 2 * CLIP / 20_000
    found["bytes_to_rank_0_per_step_and_rank"] = 8 * len(reference["first"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opacus", help="python of an environment with torch and opacus")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+")
    for hidden in ("--side", "--mode", "--store"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--noise", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side or options.rank:
        print(json.dumps(one(options) if options.side else rank(options)))
        return
    if options.ranks:
        print(json.dumps(compare_ranks(options), indent=2))
        return
    sides = {"plain": (sys.executable, "plain", ""), "gratis": (sys.executable, "gratis", "")}
    if options.opacus:
        sides |= {f"opacus {mode}": (options.opacus, "opacus", mode) for mode in ("hooks", "ghost")}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    noise: dict[str, list[str]] = {name: [] for name in sides}
    for seed in range(options.seeds):
        for name, (python, side, mode) in sides.items():
            given = [f"--steps={options.steps}", f"--batch={options.batch}", f"--epsilon={options.epsilon}"]
            said = answer(child(python, f"--side={side}", f"--mode={mode}", f"--seed={seed}", *given, *noise[name]))
            noise[name] = [f"--noise={said['noise_multiplier']}"] if side != "plain" else []
            runs[name].append(said)
            print(name, seed, said, file=sys.stderr, flush=True)
    report: dict[str, Any] = {"steps": options.steps, "batch": options.batch, "epsilon": options.epsilon}
    for name, found in runs.items():
        report[name] = {key: [one[key] for one in found] for key in ("accuracy", "cpu_seconds", "peak_megabytes")}
        report[name] |= {key: found[0][key] for key in ("noise_multiplier", "epsilon")}
        report[name]["mean_accuracy"] = statistics.mean(one["accuracy"] for one in found)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
