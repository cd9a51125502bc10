"""A slice of benchmarks/fuzz.py: hostile files are answered or refused, never a traceback."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"
_spec = importlib.util.spec_from_file_location("fuzz", PATH)
assert _spec is not None
assert _spec.loader is not None
fuzz: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fuzz)


@pytest.mark.parametrize(
    ("kind", "cases"), [("certificate", 150), ("schema", 100), ("model file", 150), ("ledger", 50), ("table", 12)]
)
def test_hostile_files_are_answered_or_refused(kind: str, cases: int, tmp_path: Path) -> None:
    outcomes = {fuzz.case(2, number, tmp_path, 60.0, only=kind)[1] for number in range(cases)}
    assert outcomes == {"ok", "refused"}


def test_a_traceback_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(path: Path) -> None:
        raise KeyError(path.name)

    monkeypatch.setattr(fuzz, "warm_up", lambda: None)
    monkeypatch.setattr(fuzz.TableSchema, "read", broken)
    counts, failures = fuzz.fuzz(3, 0, 60.0, only="schema")
    assert counts == {("schema", "FAILED"): 3}
    assert "--seed 0 --case 2" in failures[-1]
    assert "KeyError" in capsys.readouterr().out
