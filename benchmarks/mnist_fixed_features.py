"""MNIST at ε = 1, δ = 1/50,000, replace-one: scattering features through DPRandomFeaturesClassifier, 3 runs."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from gratis import DPRandomFeaturesClassifier
from gratis.accounting import verify_certificate
from gratis.data.images import load_mnist


def main() -> None:
    images = load_mnist(standardise=False)
    X, y = images.x_train[:50_000].reshape(50_000, -1).astype(np.float64), images.y_train[:50_000]
    X_test, y_test = images.x_test.reshape(10_000, -1).astype(np.float64), images.y_test
    rows = []
    for centre in (False, True):
        for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
            start = time.perf_counter()
            model = DPRandomFeaturesClassifier(
                epsilon=1.0, delta=1 / 50_000, features="scattering", centre=centre, classes=np.arange(10)
            ).fit(X, y)
            assert verify_certificate(model.certificate_) == []
            row = {
                "private_mean": centre,
                "run": seed,
                "test_accuracy": float(model.score(X_test, y_test)),
                "epsilon": model.certificate_.guarantee["epsilon"],
                "engine": model.engine_,
                "seconds": round(time.perf_counter() - start, 1),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
