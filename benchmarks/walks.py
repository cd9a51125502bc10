"""How far a reader has to walk: functions, files and rooms of the package that six tasks pass through.

    python benchmarks/walks.py [--source OTHER_TREE/src] [--task TASK --names]

Every task runs in a fresh process on a table of 400 × 4 numbers under a profiler of all Python calls. Counted are
functions that have a name (no comprehensions, lambdas, class bodies, module bodies), the files they stand in and the
rooms of these files (folders of src/gratis). "plan, reserve, run, commit, certify" is a linear fit of an array with a
ledger that exists: the private path without tables, reports and audits. Lines of src/gratis are counted as well.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

BUDGET = ["--epsilon", "1", "--delta", "1e-5"]
TASKS = (
    "gratis fit --model linear",
    "gratis plan linear",
    "DPLinearRegression.fit",
    "plan, reserve, run, commit, certify",
    "DPRandomFeaturesClassifier.fit",
    "gratis audit MODEL",
)


def walk(task: str, folder: Path) -> Callable[[], object]:
    """Prepare a task (imports, data, the model to be audited) and return what is to be watched."""
    import numpy as np

    from gratis import Budget, DPLinearRegression, DPRandomFeaturesClassifier, Ledger, save_model
    from gratis.cli.program import run

    rng = np.random.default_rng(0)
    X, table, model = rng.normal(size=(400, 4)), folder / "t.csv", folder / "model.gratis"
    y = X[:, 0] + 0.5 * rng.normal(size=400)
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="a,b,c,d,y", comments="")
    linear = DPLinearRegression(1.0, 1e-5)
    features = DPRandomFeaturesClassifier(1.0, 1e-5, n_features=100, classes=[0, 1])
    if task == "gratis audit MODEL":
        save_model(model, linear.fit(X, y))
    kept = DPLinearRegression(1.0, 1e-5, ledger=str(folder / "ledger"), dataset="t")
    if task == "plan, reserve, run, commit, certify":
        Ledger.create(folder / "ledger", {"t": Budget(epsilon=4.0, delta=1e-4)})
    fit = ["fit", str(table), "--target", "y", "--model", "linear", *BUDGET, "--output", str(folder / "out")]
    actions: dict[str, Callable[[], object]] = {
        "gratis fit --model linear": lambda: run(fit),
        "gratis plan linear": lambda: run(["plan", "linear", "--n", "5000", "--d", "20", *BUDGET]),
        "DPLinearRegression.fit": lambda: linear.fit(X, y),
        "plan, reserve, run, commit, certify": lambda: kept.fit(X, y),
        "DPRandomFeaturesClassifier.fit": lambda: features.fit(X, (y > 0).astype(int)),
        "gratis audit MODEL": lambda: run(["audit", str(model), "--runs", "48"]),
    }
    return actions[task]


def watched(action: Callable[[], object], package: Path) -> dict[str, Any]:
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        code = action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if isinstance(code, int) and code != 0:
        raise SystemExit(f"the task ended with {code}")
    codes = [
        code
        for code in seen
        if code.co_filename.startswith(f"{package}{os.sep}")
        and not code.co_name.startswith("<")
        and code.co_flags & inspect.CO_OPTIMIZED  # a class body is not
    ]
    files = {code.co_filename for code in codes}
    places = [Path(code.co_filename).relative_to(package).parts for code in codes]
    rooms = Counter(place[0] for place in places if len(place) > 1)
    names = sorted(f"{Path(code.co_filename).relative_to(package)}: {code.co_qualname}" for code in codes)
    return {"functions": len(codes), "files": len(files), "rooms": dict(rooms.most_common()), "names": names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--task", help="Watch this one here and print JSON (what the other mode calls).")
    parser.add_argument("--names", action="store_true", help="With --task: print the functions that were passed.")
    options = parser.parse_args()
    source = options.source.resolve()
    if options.task is not None:
        with tempfile.TemporaryDirectory() as folder:
            action = walk(options.task, Path(folder))
            found = watched(action, source / "gratis")
            print("\n" + ("\n".join(found["names"]) if options.names else json.dumps(found)))
        return
    print("| task | functions | files | rooms | functions by room |\n|---|---|---|---|---|")
    for task in TASKS:
        command = [sys.executable, __file__, "--source", str(source), "--task", task]
        with tempfile.TemporaryDirectory() as cache:  # nothing may be remembered from an earlier walk
            places = {"PYTHONPATH": str(source), "XDG_CACHE_HOME": cache}
            out = subprocess.run(command, env=os.environ | places, check=True, capture_output=True, text=True).stdout
        found = json.loads(out.splitlines()[-1])
        rooms = ", ".join(f"{room} {count}" for room, count in found["rooms"].items())
        print(f"| `{task}` | {found['functions']} | {found['files']} | {len(found['rooms'])} | {rooms} |", flush=True)
    texts = [path.read_text(encoding="utf-8") for path in (source / "gratis").rglob("*.py")]
    print(f"\n{sum(text.count(chr(10)) for text in texts)} lines in {len(texts)} files of src/gratis")


if __name__ == "__main__":
    main()
