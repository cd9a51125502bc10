"""What a command costs before and besides the training: CPU seconds of fresh processes (user and system, children too).

    python benchmarks/startup.py [--repeats 3] [--only WORDS] [--output docs/results/startup.json]

The least and the median of the repeats, with the load of the machine, which should have nothing else to do: a busy
neighbour on the same core makes CPU seconds longer. A run that is not counted comes first: it may compile kernels and
byte code, which an installed package has on disk (so PYTHONDONTWRITEBYTECODE is taken out of the environment).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIZES = ["--n", "5000", "--d", "20", "--epsilon", "1", "--delta", "1e-6"]
FIT = (
    "import os; import numpy as np; from gratis import DPLinearRegression;"
    "r = np.random.default_rng(0); X = r.normal(size=(20000, 20)); y = X @ r.normal(size=20) + r.normal(size=20000);"
    "model = DPLinearRegression(epsilon=1.0, delta=1e-6); start = sum(os.times()[:2]); model.fit(X, y);"
    "print('alone', sum(os.times()[:2]) - start)"
)


def commands(table: Path) -> dict[str, list[str]]:
    gratis = [sys.executable, "-c", "from gratis.cli import main; main()"]
    return {
        "import gratis": [sys.executable, "-c", "import gratis"],
        "import scikit-learn (not ours)": [sys.executable, "-c", "import sklearn.base"],
        "plan linear": [*gratis, "plan", "linear", *SIZES],
        "plan linear --algorithm one-pass": [*gratis, "plan", "linear", "--algorithm", "one-pass", *SIZES],
        "plan logistic": [*gratis, "plan", "logistic", "--classes", "2", *SIZES],
        "plan additive": [*gratis, "plan", "additive", *SIZES],
        "plan random-features": [*gratis, "plan", "random-features", *SIZES],
        "plan mlp": [*gratis, "plan", "mlp", "--classes", "2", *SIZES],
        "compare": [*gratis, "compare", "--n", "5000", "--d", "20"],
        "fit --dry-run, 20,000 x 20": [
            *gratis, "fit", str(table), "--target", "y", "--epsilon", "1", "--delta", "1e-6", "--dry-run"
        ],
        "DPLinearRegression.fit, 20,000 x 20, with imports": [sys.executable, "-c", FIT],
    }  # fmt: skip


def cpu_seconds(command: list[str]) -> dict[str, float]:
    """Of the whole process, and of the part that it timed itself ("alone")."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    said = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ).stdout
    after = os.times()
    found = {"": after.children_user + after.children_system - before.children_user - before.children_system}
    if said.startswith("alone "):
        found[", alone"] = float(said.split()[1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="commands whose name contains this")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "t.csv"
        rng = np.random.default_rng(0)
        X = rng.normal(size=(20_000, 20))
        names = [*(f"x{i}" for i in range(20)), "y"]
        np.savetxt(
            table, np.column_stack([X, X @ rng.normal(size=20)]), delimiter=",", header=",".join(names), comments=""
        )
        found: dict[str, dict[str, float]] = {}
        for name, command in commands(table).items():
            if options.only not in name:
                continue
            cpu_seconds(command)
            taken = [cpu_seconds(command) for _ in range(options.repeats)]
            for part in taken[0]:
                seconds = sorted(one[part] for one in taken)
                found[name + part] = {
                    "least": round(seconds[0], 2),
                    "median": round(statistics.median(seconds), 2),
                    "load": round(os.getloadavg()[0], 1),
                }
                print(f"{found[name + part]}  {name + part}", flush=True)
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
