"""Sweeps: the same results whatever runs them, and nothing is computed twice after an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gratis.records.errors import GratisError
from gratis_papers import sweeps
from gratis_papers.sweeps import Execution, executing, sweep

# A sweep in a program of its own, so that workers can import the function. Each computed setting leaves a trace. While
# the file "stop" is there, nothing beyond x = 2 is computed: the kill comes in the middle, however busy the machine is.
PROGRAM = """
import time
from pathlib import Path

HERE = Path(__file__).parent

def traced(x, rng):
    with open(HERE / "trace", "a") as trace:
        trace.write(f"{x}\\n")
    while x > 2 and (HERE / "stop").exists():
        time.sleep(0.05)
    return {"x": x, "draw": rng.normal()}
"""
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from traced_sweep import traced
from gratis_papers.sweeps import Execution, executing, sweep
folder = Path(sys.argv[1]) / "kept" if sys.argv[3] == "resume" else None
with executing(Execution(folder=folder, jobs=int(sys.argv[2]))):
    print(sweep(traced, [{"x": x} for x in range(6)]))
"""


def draws(x: int, rng: np.random.Generator) -> dict[str, object]:
    return {"x": x, "draws": rng.normal(size=3).tolist(), "pair": (x, 2 * x)}


SETTINGS = [{"x": x} for x in range(5)]


def test_results_do_not_depend_on_order_or_neighbours() -> None:
    alone = sweep(draws, SETTINGS, seed=7)
    assert [one["x"] for one in alone] == list(range(5))
    assert alone[1]["pair"] == [1, 2], "plain data even when nothing is stored"
    assert sweep(draws, SETTINGS[::-1], seed=7)[::-1] == alone
    assert sweep(draws, SETTINGS[2:3], seed=7) == alone[2:3]
    assert sweep(draws, SETTINGS, seed=8) != alone
    assert len({tuple(one["draws"]) for one in alone}) == 5


def test_the_last_digit_of_a_setting_changes_no_draw() -> None:
    # Powers differ in their last digit from one machine to the next, and grids are made of them.
    def draw(rates: list[float], rng: np.random.Generator) -> float:
        return float(rng.normal())

    grid = np.geomspace(0.2, 200, 9)
    for other in (np.nextafter(grid, 0), np.nextafter(grid, np.inf)):
        assert sweep(draw, [{"rates": other.tolist()}]) == sweep(draw, [{"rates": grid.tolist()}])
    assert sweep(draw, [{"rates": (grid * (1 + 1e-6)).tolist()}]) != sweep(draw, [{"rates": grid.tolist()}])


def test_a_local_dask_cluster_gives_the_same_results(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    alone = sweep(draws, SETTINGS, seed=7)
    # In-process workers: no ports to wait for; the command line opens worker processes instead.
    with (
        distributed.Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None),
        executing(Execution(backend="dask", jobs=2, folder=tmp_path)),
    ):
        assert sweep(draws, SETTINGS, seed=7) == alone
    with executing(Execution(folder=tmp_path)):
        assert sweep(draws, SETTINGS, seed=7) == alone, "what Dask computed is found again"


def test_only_what_changed_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[object] = []
    original = sweeps._one

    def counting(function, key, setting, seed):
        computed.append((setting["x"], seed))
        return original(function, key, setting, seed)

    monkeypatch.setattr(sweeps, "_one", counting)
    with executing(Execution(folder=tmp_path)):
        first = sweep(draws, SETTINGS)
        assert len(computed) == 5
        assert sweep(draws, [*SETTINGS, {"x": 9}, {"x": 9}])[:5] == first
        assert computed[5:] == [(9, 0)]
        sweep(draws, SETTINGS[:1], seed=1)
        assert computed[6:] == [(0, 1)]
        stored = sorted((tmp_path / "draws").glob("*.json"))
        assert len(stored) == 7
        assert not list(tmp_path.rglob("*.partial"))
        torn = stored[0]
        torn.write_text(torn.read_text(encoding="utf-8")[:20], encoding="utf-8")
        lost = [*SETTINGS, {"x": 9}]
        sweep(draws, lost)
        sweep(draws, SETTINGS[:1], seed=1)
        assert len(computed) == 8, "a torn file counts as missing"
        monkeypatch.setattr("gratis.__version__", "99", raising=False)
        sweep(draws, SETTINGS)
        assert len(computed) == 13


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_sweep_continues_where_it_stopped(tmp_path: Path, jobs: int) -> None:
    (tmp_path / "traced_sweep.py").write_text(PROGRAM, encoding="utf-8")
    stop, trace = tmp_path / "stop", tmp_path / "trace"
    command = [sys.executable, "-c", RUN, str(tmp_path)]

    def stored() -> set[int]:
        return {json.loads(p.read_text(encoding="utf-8"))["setting"]["x"] for p in (tmp_path / "kept").rglob("*.json")}

    stop.touch()
    process = subprocess.Popen([*command, str(jobs), "resume"], start_new_session=True)
    try:
        while len(stored()) < 2 and process.poll() is None:
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the sweep and its own workers
        process.wait()
    kept = stored()
    assert 2 <= len(kept) <= 3
    trace.unlink()
    stop.unlink()
    resumed = subprocess.check_output([*command, str(jobs), "resume"])
    assert stored() == set(range(6))
    again = sorted(map(int, trace.read_text(encoding="utf-8").split()))
    assert again == sorted(set(range(6)) - kept)
    # Interrupted and resumed on other numbers of processes: the same digits as in one go on one.
    assert subprocess.check_output([*command, "1", "afresh"]) == resumed


def test_missing_backends_and_bad_settings_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GratisError, match="unknown backend 'spark'"):
        Execution(backend="spark")
    with pytest.raises(GratisError, match="plain JSON"):
        sweep(draws, [{"x": object()}])
    for backend, module in (("dask", "distributed"), ("ray", "ray.util.joblib")):
        monkeypatch.setitem(sys.modules, module, None)
        with executing(Execution(backend=backend)), pytest.raises(GratisError, match=rf"pip install .*{backend}"):
            sweep(draws, SETTINGS)
