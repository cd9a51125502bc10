"""A plan file that was written on one kind of processor is the same plan on another."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import gratis

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
PLANS = {
    "one pass": ("linear", {"rows": 300, "columns": 3, "algorithm": "one-pass"}),
    "one pass, classes": ("logistic", {"rows": 2000, "columns": 5, "classes": 2, "algorithm": "one-pass"}),
    "random features": ("random-features", {"rows": 1000, "columns": 10, "n_features": 200}),
    "additive": ("additive", {"rows": 5000, "columns": 4, "classes": 3}),
    "linear": ("linear", {"rows": 5000, "columns": 4}),
}
# A processor without vector extensions: other kernels of BLAS and NumPy, compiled code for none in particular.
ELSEWHERE = {
    "OPENBLAS_CORETYPE": "Prescott", "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "OMP_NUM_THREADS": "1",
}  # fmt: skip


@pytest.mark.slow
def test_plan_files_are_read_under_other_kernels(tmp_path):
    for place, (model, facts) in enumerate(PLANS.values()):
        gratis.plan(model, **facts, **BUDGET).write(tmp_path / f"{place}.json")
    read = "import gratis, sys; [gratis.read_plan(path) for path in sys.argv[1:]]"
    files = [str(tmp_path / f"{place}.json") for place in range(len(PLANS))]
    settings = os.environ | ELSEWHERE | {"NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
    done = subprocess.run([sys.executable, "-c", read, *files], env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_a_changed_plan_file_is_still_refused(tmp_path):
    path = tmp_path / "plan.json"
    gratis.plan("linear", rows=300, columns=3, algorithm="one-pass", **BUDGET).write(path)
    text = path.read_text()
    path.write_text(text.replace('"columns": 3', '"columns": 4', 1))
    with pytest.raises(gratis.GratisError, match="was changed"):
        gratis.read_plan(path)
