"""How fast and how small is the one-pass trainer? All ratios are measured side by side in one run; medians.

python benchmarks/one_pass.py                      speed of the pass and of the simulator
python benchmarks/one_pass.py --stream-gigabytes 2 also peak memory on Parquet files
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from gratis.accounting.iteration import least_noise
from gratis.mechanisms.noise import NoiseSource
from gratis.records.events import OnePassIteration
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs
from gratis.rows.streaming import open_rows
from gratis.stages.one_pass import OnePassLoss, OnePassTrainer, train_one_pass
from gratis_papers.one_pass_runs import simulate_one_pass

BLOCKS = 1024
INFLATION = 1.01


def square_root_schedule(steps: int, d: int, *, blocks: int, batch: int = 1, rho: float = 1.0) -> OnePassIteration:
    """η ∝ √(1 − t) held constant on blocks, C = √d/2, least noise."""
    position = np.arange(steps) * min(blocks, steps) // steps / min(blocks, steps)
    eta, clip = 2 / steps * np.sqrt(1 - position), 0.5 * np.sqrt(d)
    noise = least_noise(eta * clip / batch, rho=rho / INFLATION, neighbouring=Neighbouring.REPLACE_ONE)
    return OnePassIteration(
        step_sizes=Runs.of(eta), clip_norms=Runs.constant(clip, steps), noise_stds=Runs.of(noise), batch_size=batch,
        rounding_inflation=INFLATION, neighbouring="replace-one",
    )  # fmt: skip


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def run_pass(event: OnePassIteration, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    trainer = OnePassTrainer(event, OnePassLoss.SQUARED, n_features=X.shape[1], noise=NoiseSource.secure())
    trainer.consume(X, y)
    return trainer.release()


def speed_of_the_pass(repeats: int) -> None:
    print("One pass against drawing n·d normals (secure generator) + reading X once; the target is a ratio of 1.5")
    names = ("n", "d", "type", "read", "normals", "blocks", "ratio", "noise/row", "ratio")
    print(" ".join(f"{name:>9}" for name in names))
    for n, d in ((400_000, 20), (50_000, 200), (5_000, 2000)):
        for dtype in (np.float32, np.float64):
            one_size(n, d, np.dtype(dtype), repeats)
    print("(the last ratio: noise on every row, against drawing as many hardened normals, two draws each)\n")


def one_size(n: int, d: int, dtype: np.dtype, repeats: int) -> None:
    rng, source = np.random.default_rng(0), NoiseSource.secure()
    X = rng.standard_normal((n, d)).astype(dtype)
    y = X[:, 0] + rng.standard_normal(n)
    blocks, every_row = square_root_schedule(n, d, blocks=BLOCKS), square_root_schedule(n, d, blocks=n)
    run_pass(square_root_schedule(2, d, blocks=2), X[:2], y[:2])
    actions = (
        X.sum,
        lambda: source.generator.standard_normal((n, d)),
        lambda: source.normal(1.0, (n, d)),
        lambda: run_pass(blocks, X, y),
        lambda: run_pass(every_row, X, y),
    )
    times = [[seconds(action) for action in actions] for _ in range(repeats)]
    read, normals, hardened, pass_blocks, pass_rows = map(statistics.median, zip(*times, strict=True))
    ratios = pass_blocks / (normals + read), pass_rows / (hardened + read)
    numbers = (read, normals, pass_blocks, ratios[0], pass_rows, ratios[1])
    print(f"{n:9d} {d:9d} {dtype.name:>9} " + " ".join(f"{number:9.4f}" for number in numbers))


def numpy_loop(event: OnePassIteration, spectrum: np.ndarray, runs: int, rng: np.random.Generator) -> None:
    eta, clip, std = (s.array() for s in (event.step_sizes, event.clip_norms, event.noise_stds))
    d = spectrum.size
    truth, scale = np.full(d, d**-0.5), np.sqrt(spectrum)
    for _ in range(runs):
        theta = np.zeros(d)
        for k in range(event.steps):
            x = rng.standard_normal(d) * scale
            slope = x @ theta - x @ truth - 0.5 * rng.standard_normal()
            square = x @ x
            limit = clip[k] / np.sqrt(square)
            theta -= min(eta[k], 2 / square) * min(max(slope, -limit), limit) * x
            if std[k] > 0:
                theta += std[k] * rng.standard_normal(d)


def speed_of_the_simulator(repeats: int) -> None:
    n, d, runs, few = 2000, 200, 1000, 5
    print(
        f"{runs} simulated runs, n = {n}, d = {d}, on all cores, against a NumPy loop ({few} runs, scaled); target 50"
    )
    event = square_root_schedule(n, d, blocks=n)
    spectra = {"isotropic": np.ones(d), "all eigenvalues distinct": 1.4 * np.linspace(0.01, 1, d) ** 0.4}
    for name, spectrum in spectra.items():

        def simulate(count: int = runs, spectrum: np.ndarray = spectrum) -> None:
            simulate_one_pass(
                [event], eigenvalues=spectrum, target=np.full(d, d**-0.5), label_noise_variance=0.25,
                repetitions=count, record_steps=[n], rng=np.random.default_rng(0),
            )  # fmt: skip

        def loop(spectrum: np.ndarray = spectrum) -> None:
            numpy_loop(event, spectrum, few, np.random.default_rng(0))

        simulate(2)
        times = [(seconds(simulate), seconds(loop) * runs / few) for _ in range(repeats)]
        ours, theirs = map(statistics.median, zip(*times, strict=True))
        print(f"  {name}: {ours:.3f} s against {theirs:.1f} s, ratio {theirs / ours:.0f}")
    print()


FEATURES = 50
GROUP_ROWS = 200_000


def write_parquet(path: Path, gigabytes: float) -> None:
    """Incompressible single-precision columns, written a row group at a time."""
    rng = np.random.default_rng(0)
    schema = pa.schema([(f"x{j}", pa.float32()) for j in range(FEATURES)] + [("y", pa.float32())])
    with pa.parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for _ in range(round(gigabytes * 1e9 / (GROUP_ROWS * (FEATURES + 1) * 4))):
            table = rng.standard_normal((FEATURES + 1, GROUP_ROWS), dtype=np.float32)
            writer.write_table(pa.table(list(table), schema=schema), row_group_size=GROUP_ROWS)


def peak_megabytes() -> float:
    """VmHWM where there is one: ru_maxrss also counts what the parent held when it started this process."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (text for text in status.read_text().splitlines() if text.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def train_from_parquet(path: str) -> None:
    """Run in a process of its own, so that its peak memory is that of the pass."""
    before = peak_megabytes()
    stream = open_rows(path, target="y")
    batch = 1000
    event = square_root_schedule(-(-stream.n_rows // batch), FEATURES, blocks=BLOCKS, batch=batch)
    took = seconds(lambda: train_one_pass(stream, event, OnePassLoss.SQUARED, noise=NoiseSource.secure()))
    peak = peak_megabytes()
    size = Path(path).stat().st_size
    print(
        f"  {size / 1e9:.2f} GB, {stream.n_rows} rows: {took:.1f} s ({size / 1e9 / took:.2f} GB/s), "
        f"peak {peak:.0f} MB, of which {before:.0f} MB are imports",
        flush=True,
    )


def memory_of_streaming(gigabytes: float) -> None:
    print("Peak resident memory of a pass over a Parquet file (imports included; the target is 1 GB for 20 GB)")
    for size in (gigabytes / 8, gigabytes):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            for task in ("--write", "--train"):
                subprocess.run([sys.executable, __file__, task, str(path), "--stream-gigabytes", str(size)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--stream-gigabytes", type=float, default=0.0)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_parquet(options.write, options.stream_gigabytes)
    elif options.train:
        train_from_parquet(options.train)
    else:
        speed_of_the_pass(options.repeats)
        speed_of_the_simulator(options.repeats)
        if options.stream_gigabytes > 0:
            memory_of_streaming(options.stream_gigabytes)


if __name__ == "__main__":
    main()
