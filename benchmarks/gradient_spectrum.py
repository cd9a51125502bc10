"""Memory and time of the gradient recorder: top 100 of 1,000 gradients of 7 million parameters, in under 8 GB.

    python benchmarks/gradient_spectrum.py [--quick] [--directions] [--sketch 200000]

Gradients are synthetic with known singular values k^-0.6 (r fixed random directions on disjoint coordinates, mixed by
a random rotation of the rows), so errors are exact. --directions adds the second pass that gives the top-k subspace.
Nothing is written to disk. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from gratis_papers.gradient_spectrum import GradientRecorder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--directions", action="store_true")
    parser.add_argument("--sketch", type=int, default=200_000)
    arguments = parser.parse_args()
    r, p, k = (100, 200_000, 20) if arguments.quick else (1000, 7_000_000, 100)
    sketch = min(arguments.sketch, p // 10) if arguments.quick else arguments.sketch
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((r, r)))[0]
    values = np.arange(1.0, r + 1) ** -0.6
    # Coordinate j belongs to direction j mod r, with a random size: r orthonormal directions that fill all of p.
    sizes = rng.standard_normal(p).astype(np.float32)
    owner = np.arange(p) % r
    lengths = np.sqrt(np.bincount(owner, weights=sizes.astype(np.float64) ** 2, minlength=r))

    def gradient(i: int) -> np.ndarray:
        coefficients = (rotation[i] * values / lengths).astype(np.float32)
        return np.resize(coefficients, p) * sizes

    recorder = GradientRecorder(p, allow_non_private_diagnostics=True, sketch_size=sketch)
    start = time.process_time()
    for i in range(r):
        recorder.observe(gradient(i))
    observed = time.process_time() - start
    spectrum = recorder.spectrum(k)
    decay = spectrum.decay(last=k)
    answer = {
        "gradients": r,
        "parameters": p,
        "top": k,
        "sketch_size": sketch,
        "observe_cpu_seconds": observed,
        "spectrum_cpu_seconds": time.process_time() - start - observed,
        "largest_relative_error": float(np.abs(spectrum.singular_values / values[:k] - 1).max()),
        "expected_relative_error": spectrum.relative_error,
        "decay_exponent": decay.exponent,
        "sketch_gigabytes": r * sketch * 4 / 2**30,
    }
    if arguments.directions:
        begin = time.process_time()
        second = recorder.second_pass(k)
        for i in range(r):
            second.observe(gradient(i))
        basis = second.directions()
        # Energy of the true leading directions inside the found subspace.
        captured = []
        for j in range(min(k, 10)):
            true = np.where(owner == j, sizes / lengths[j], 0).astype(np.float32)
            captured.append(float(np.sum((basis @ true) ** 2)))
        answer["directions_cpu_seconds"] = time.process_time() - begin
        answer["energy_of_first_ten_true_directions"] = captured
    answer["peak_gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    answer["limit_gigabytes"] = 8.0
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
