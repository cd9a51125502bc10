"""The walls of the house: who may import whom, read from the source so that lazy imports count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gratis

SOURCE = Path(gratis.__file__).parent
BASE = {"specs", "numerics"}
MAY_IMPORT = {
    "specs": set(),
    "numerics": set(),
    "accounting": BASE,
    "theory": BASE,
    "models": BASE,
    "data": BASE,
    "mechanisms": BASE | {"accounting"},
    "training": BASE | {"accounting", "mechanisms"},
    "stages": BASE | {"accounting", "mechanisms", "models"},
    "simulation": BASE | {"accounting", "mechanisms", "training", "models"},
    "planner": BASE | {"theory", "accounting", "simulation"},
    "ledger": {"specs", "accounting"},
    "audits": BASE | {"accounting", "mechanisms", "training", "models", "recipes", "estimators"},
    "report": {"specs"},
    "recipes": BASE | {"accounting", "mechanisms", "models", "training", "simulation", "planner", "data", "stages"},
}


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a wall is crossed"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_reached(source: str) -> set[str]:
    names = [name.split(".") for name in imports_of(ast.parse(source))]
    return {parts[1] for parts in names if parts[0] == "gratis" and len(parts) > 1}


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_room_imports_only_what_it_may(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        crossed = rooms_reached(path.read_text(encoding="utf-8")) - MAY_IMPORT[room] - {room}
        assert not crossed, f"{path.relative_to(SOURCE)} must not import {sorted(crossed)}"


def test_every_room_has_its_rule() -> None:
    upper = {"estimators", "papers", "cli"}
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert rooms == set(MAY_IMPORT) | upper
    for path in SOURCE.rglob("*.py"):
        if path.parent.name not in {"papers", "cli"}:
            assert "papers" not in rooms_reached(path.read_text(encoding="utf-8")) or path.parent.name == "papers"


def reachable(room: str) -> set[str]:
    """What a room reaches through any chain of imports: the walls hold transitively, not only at the first step."""
    seen: set[str] = set()
    waiting = [room]
    while waiting:
        for path in (SOURCE / waiting.pop()).rglob("*.py"):
            new = rooms_reached(path.read_text(encoding="utf-8")) - seen
            seen |= new
            waiting += [name for name in new if (SOURCE / name).is_dir()]
    return seen


def test_the_planner_never_reaches_data() -> None:
    assert "data" not in reachable("planner")
    assert "estimators" not in reachable("planner")


def test_accounting_and_theory_do_not_see_each_other() -> None:
    assert "theory" not in reachable("accounting")
    assert "accounting" not in reachable("theory")


def test_nothing_that_trains_reaches_its_auditor() -> None:
    for room in ("mechanisms", "training", "stages", "recipes", "estimators", "planner", "ledger"):
        assert "audits" not in reachable(room)


def test_report_sees_results_only() -> None:
    assert reachable("report") <= {"specs", "report"}


def test_the_reader_of_imports_would_notice() -> None:
    """Negative control: lazy and aliased imports are seen."""
    assert rooms_reached("def f():\n    import gratis.data.streaming as s") == {"data"}
    assert rooms_reached("from gratis import theory") == {"theory"}


def test_core_never_imports_torch_or_dp_accounting_at_import_time() -> None:
    import subprocess
    import sys

    code = (
        "import sys, gratis, gratis.accounting, gratis.specs.events, gratis.mechanisms.noise;"
        "heavy = {'torch', 'dp_accounting', 'matplotlib', 'pandas', 'sklearn', 'pyarrow'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
