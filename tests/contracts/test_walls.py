"""The walls of the house: who may import whom, read from the source so that lazy imports count too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gratis

SOURCE = Path(gratis.__file__).parent
PAPERS = SOURCE.parent / "gratis_papers"
BASE = {"records", "numerics"}
TRAINS = BASE | {"accounting", "mechanisms", "models", "private", "stages"}
MAY_IMPORT = {
    "records": set(),
    "numerics": set(),
    "accounting": BASE,
    "models": BASE | {"mechanisms", "private"},
    "rows": BASE,
    "mechanisms": BASE | {"accounting"},
    "private": BASE | {"accounting", "mechanisms"},
    "stages": TRAINS,
    "planning": TRAINS,
    "recipes": TRAINS | {"planning", "rows"},
    "ledger": {"records", "accounting"},
    "audits": TRAINS | {"recipes", "rows", "estimators"},
    "report": {"records"},
    "studio": BASE | {"accounting", "planning", "rows", "ledger", "estimators"},
}
THEORY = ("planning/one_pass", "planning/bounds")


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
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(MAY_IMPORT) | {"estimators", "cli"}


def test_papers_are_used_by_their_commands_alone() -> None:
    users = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if any(
            name.split(".")[0] == "gratis_papers" for name in imports_of(ast.parse(path.read_text(encoding="utf-8")))
        )
    }
    assert users == {"cli/papers.py", "cli/lab.py"}
    assert PAPERS.is_dir()


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


def test_planning_never_reaches_rows() -> None:
    assert "rows" not in reachable("planning")
    assert "estimators" not in reachable("planning")


def test_accounting_and_theory_do_not_see_each_other() -> None:
    assert "planning" not in reachable("accounting")
    for folder in THEORY:
        for path in (SOURCE / folder).rglob("*.py"):
            names = set(imports_of(ast.parse(path.read_text(encoding="utf-8"))))
            ours = {name for name in names if name.startswith("gratis.")}
            allowed = tuple(
                f"gratis.{room}" for room in ("records", "numerics", *(f.replace("/", ".") for f in THEORY))
            )
            assert all(name.startswith(allowed) for name in ours), path


def test_nothing_that_trains_reaches_its_auditor() -> None:
    for room in ("mechanisms", "private", "models", "stages", "recipes", "estimators", "planning", "ledger"):
        assert "audits" not in reachable(room)


def test_report_sees_results_only() -> None:
    assert reachable("report") <= {"records", "report"}


def test_the_studio_is_reached_by_its_command_alone() -> None:
    """Nothing that computes knows of the page; and the page starts a fit as a command, so it names no private step."""
    users = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "studio" and "studio" in rooms_reached(path.read_text(encoding="utf-8")) - {"cli"}
    }
    assert users == {"cli/studio.py"}


def test_the_reader_of_imports_would_notice() -> None:
    """Negative control: lazy and aliased imports are seen."""
    assert rooms_reached("def f():\n    import gratis.rows.streaming as s") == {"rows"}
    assert rooms_reached("from gratis import planning") == {"planning"}


def test_core_never_imports_torch_or_dp_accounting_at_import_time() -> None:
    code = (
        "import sys, gratis, gratis.accounting, gratis.records.events, gratis.mechanisms.noise;"
        "heavy = {'torch', 'dp_accounting', 'matplotlib', 'pandas', 'sklearn', 'pyarrow'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plan_of_any_model_and_a_dry_run_load_no_estimator(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b,y\n" + "".join(f"{i % 7},{i % 5}.5,{i % 11}.25\n" for i in range(200)), encoding="utf-8")
    code = (
        "import sys; import gratis; from gratis.cli.program import run\n"
        "for model, classes in (('linear', None), ('logistic', 2), ('additive', None), ('mlp', 2)):\n"
        "    gratis.plan(model, rows=500, columns=3, classes=classes, epsilon=1.0, delta=1e-4)\n"
        f"code = run(['fit', {str(table)!r}, '--target', 'y', '--epsilon', '1', '--delta', '1e-4', '--dry-run'])\n"
        "heavy = {'torch', 'matplotlib', 'pandas', 'sklearn', 'numba', 'scipy.optimize'} & set(sys.modules)\n"
        "sys.exit(f'{code} {sorted(heavy)}' if code or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
