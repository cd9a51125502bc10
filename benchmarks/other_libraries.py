"""diffprivlib on the same tables, splits and ε, with scales and bounds that nobody has: those of the private rows.

    GRATIS_DATA=... python benchmarks/other_libraries.py --python /path/to/venv/bin/python [--seeds 10]

The other library lives in its own environment (it is no dependency; 0.6.6 runs with scikit-learn 1.5) and gets arrays
through files. It proves pure ε-DP, which is more than (ε, δ); ours is replace-one with δ = 1e−5 and asks for no bounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from gratis import DPLinearRegression, DPLogisticRegression
from tabular import CLASSIFICATION, REGRESSION, split

OTHER = """
import json, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from diffprivlib.models import LinearRegression, LogisticRegression
d = np.load(sys.argv[1])
X, y, T, t = (d[k] for k in ("X", "y", "T", "t"))
centre, scale = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
X, T = (X - centre) / scale, (T - centre) / scale
if d["regression"]:
    bounds = (X.min(axis=0), X.max(axis=0))
    model = LinearRegression(epsilon=1.0, bounds_X=bounds, bounds_y=(y.min(), y.max()), random_state=int(d["seed"]))
else:
    model = LogisticRegression(epsilon=1.0, data_norm=np.linalg.norm(X, axis=1).max(), max_iter=200,
                               random_state=int(d["seed"]))
print(json.dumps(float(model.fit(X, y).score(T, t))))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="Interpreter of an environment with diffprivlib.")
    parser.add_argument("--tables", default="california,bike_hour,winequality_white,communities_crime,adult")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    for name in arguments.tables.split(","):
        X, y = (REGRESSION | CLASSIFICATION)[name]()
        regression = name in REGRESSION
        ours, other = [], []
        for seed in range(arguments.seeds):
            train, test = split(X, y, seed)
            model = DPLinearRegression if regression else DPLogisticRegression
            ours.append(model(1.0, 1e-5).fit(*train).score(*test))
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "split.npz"
                np.savez(path, X=train[0], y=train[1], T=test[0], t=test[1], regression=regression, seed=seed)
                found = subprocess.run(
                    [arguments.python, "-c", OTHER, str(path)], capture_output=True, text=True, check=True
                )
            other.append(json.loads(found.stdout))
        row = {"table": name, "score": "R2" if regression else "accuracy", "splits": arguments.seeds}
        row |= {"gratis": float(np.median(ours)), "diffprivlib": float(np.median(other))}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
