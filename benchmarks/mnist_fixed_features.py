"""MNIST at ε = 1, δ = 1/50,000, replace-one: scattering features through DPRandomFeaturesClassifier.

    GRATIS_DATA=... python benchmarks/mnist_fixed_features.py [--runs 3] [--parts with-mean without-mean]

One JSON line a run: test accuracy, wall and CPU seconds of fit and score. Noise is secure: accuracies vary a little.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from gratis import DPRandomFeaturesClassifier
from gratis.accounting import verify_certificate
from gratis_papers.images import load_mnist

PARTS = {"with-mean": True, "without-mean": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    options = parser.parse_args()
    images = load_mnist(standardise=False)
    X, y = images.x_train[:50_000].reshape(50_000, -1).astype(np.float64), images.y_train[:50_000]
    X_test, y_test = images.x_test.reshape(10_000, -1).astype(np.float64), images.y_test
    for part in options.parts:
        for run in range(options.runs):
            start = time.perf_counter(), time.process_time()
            model = DPRandomFeaturesClassifier(
                epsilon=1.0, delta=1 / 50_000, features="scattering", centre=PARTS[part], classes=np.arange(10)
            ).fit(X, y)
            assert verify_certificate(model.certificate_) == []
            row = {
                "private_mean": PARTS[part],
                "run": run,
                "test_accuracy": float(model.score(X_test, y_test)),
                "epsilon": model.certificate_.guarantee["epsilon"],
                "engine": model.engine_,
                "seconds": round(time.perf_counter() - start[0], 1),
                "cpu_seconds": round(time.process_time() - start[1], 1),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
