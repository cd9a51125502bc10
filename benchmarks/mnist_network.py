"""MNIST at δ = 1/50,000, replace-one: the network 784–1000–10 through DPMLPClassifier, one JSON line for each ε.

    GRATIS_DATA=... python benchmarks/mnist_network.py [--epsilons 1 2 4]

Every image is standardised over its own pixels, a map of one record alone: public preprocessing, nothing to pay.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from gratis import DPMLPClassifier
from gratis.accounting import verify_certificate
from gratis_papers.images import load_mnist


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    options = parser.parse_args()
    images = load_mnist()
    X, y = images.x_train[:50_000], images.y_train[:50_000]
    for epsilon in options.epsilons:
        start = time.perf_counter(), time.process_time()
        model = DPMLPClassifier(
            epsilon=epsilon, delta=1 / 50_000, width=1000, classes=np.arange(10), preprocessing="none"
        ).fit(X, y)
        assert verify_certificate(model.certificate_) == []
        row = {
            "epsilon": model.certificate_.guarantee["epsilon"],
            "test_accuracy": float(model.score(images.x_test, images.y_test)),
            "settings": {key: getattr(model.plan_.settings, key) for key in ("clip_norm", "steps", "total_rate")},
            "seconds": round(time.perf_counter() - start[0], 1),
            "cpu_seconds": round(time.process_time() - start[1], 1),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
