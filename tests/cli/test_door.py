"""From a stranger's file to a model: what is shown before, the fix that a refusal prints, levels that are paid for."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gratis.accounting import verify_certificate
from gratis.cli.program import run
from gratis.estimators import load_model
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError
from gratis.records.events import Composition, ThresholdedCounts

BUDGET = ["--epsilon", "2", "--delta", "1e-5", "--model", "linear", "--no-audit", "--no-report"]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    n = 2000
    area, town = rng.normal(80, 20, n), rng.choice(["Rome", "Oslo"], n)
    price = 3 * area + 50 * (town == "Oslo")
    price[::10] = np.nan
    path = tmp_path_factory.mktemp("homes") / "homes.csv"
    frame = pd.DataFrame({"area": area, "town": town, "seller_id": [f"S{i}" for i in range(n)], "price": price})
    frame.to_csv(path, sep=";", decimal=",")  # with the index
    return path


def test_the_one_fix_that_is_printed_leads_to_a_model(
    homes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger.create(tmp_path / "l", {"homes": Budget(epsilon=2.0, delta=1e-5)})
    output = ["--output", str(tmp_path / "out"), "--ledger", str(tmp_path / "l"), "--budget", "homes"]
    command = ["fit", str(homes), "--target", "price", *BUDGET, *output]
    assert run(command) == 2
    said = capsys.readouterr().err
    assert "'town' holds text" in said
    assert "'seller_id' looks like a name or an identifier" in said
    assert max(map(len, (line.split() for line in said.splitlines() if not line.startswith("  gratis ")))) < 50
    assert "add --task classification" not in said  # linear: a number it is
    printed = re.search(r"^  (gratis fit .*)$", said, re.MULTILINE)
    assert printed
    assert not ledger.status("homes").never_committed
    assert run(shlex.split(printed[1])[1:]) == 0
    said = capsys.readouterr().err
    assert "index" in said
    assert "Levels found within the budget: 2 of 'town'; they are in" in said
    assert "levels.json" in said
    assert "common levels are found within the budget" in said
    certificate = Certificate.read(tmp_path / "out" / "certificate.json")
    assert verify_certificate(certificate) == []
    assert isinstance(certificate.event, Composition)
    assert isinstance(certificate.event.leaves()[0], ThresholdedCounts)
    assert len(certificate.ledger_entry["entries"]) == 2  # type: ignore[index, arg-type]
    assert not ledger.status("homes").never_committed
    levels = json.loads((tmp_path / "out" / "levels.json").read_text())
    assert set(levels["columns"]["town"]["levels"]) == {"Rome", "Oslo"}
    capsys.readouterr()
    assert (
        run(["predict", str(tmp_path / "out" / "model.gratis"), str(homes), "--output", str(tmp_path / "p.csv")]) == 0
    )
    assert len(pd.read_csv(tmp_path / "p.csv")) == 2000


def test_a_dry_run_shows_what_columns_become_and_spends_nothing(
    homes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", str(homes), "--target", "price", *BUDGET, "--levels", "town=Rome,Oslo", "--ignore", "seller_id"]
    assert run([*command, "--dry-run", "--json", "--output", str(tmp_path / "out")]) == 0
    found = {reading["name"]: reading for reading in json.loads(capsys.readouterr().out)["plan"]["readings"]}
    assert found["town"]["becomes"] == ["town=Rome", "town=Oslo"]
    assert found["price"]["read_as"].startswith("the target")
    assert found[""]["becomes"] == []
    assert not (tmp_path / "out").exists()
    for wrong, words in ((["--levels", "town"], "NAME=A,B,C"), (["--missing-target", "drop"], "leave-out")):
        assert run([*command, *wrong]) == 2
        assert words in capsys.readouterr().err


def test_a_schema_is_printed_and_said(homes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", str(homes)]) == 0
    said = capsys.readouterr()
    schema = json.loads(said.out)["columns"]
    assert schema[""] == {"kind": "ignored"}
    assert schema["area"] == {"kind": "numeric", "decimal": ","}
    assert "'seller_id' looks like an identifier" in said.err


def test_encodings_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(("c,y\n" + "Zoë,1.5\nb,2.5\n" * 50).encode("latin-1"))
    command = ["fit", str(path), "--target", "y", *BUDGET, "--hash", "2", "--output", str(tmp_path / "out")]
    assert run(command) == 2
    assert "--encoding windows-1252" in capsys.readouterr().err
    assert run([*command, "--encoding", "windows-1252", "--yes"]) == 0


@pytest.mark.slow
def test_a_printed_command_keeps_what_was_given_and_names_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names with commas, spaces and quotes; two columns with dirty cells and missing targets, found in one reading."""
    rng = np.random.default_rng(0)
    n = 60_000
    frame = pd.DataFrame({"a, b": rng.normal(size=n), "c d": rng.normal(size=n), "t's": "x" * 60, "u": "y", "y": 1.5})
    frame["y"] = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    dirty = frame.astype({"a, b": object, "c d": object})
    dirty.loc[n - 1, ["a, b", "c d"]] = ["none", "n.d."]  # far behind the cells that types are guessed from
    dirty.to_csv(tmp_path / "t.csv", index=False)
    output = ["--ignore", "u", "--dry-run", "--output", str(tmp_path / "out")]
    command = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--epsilon", "1", "--delta", "1e-6", *output]

    def printed() -> list[str]:
        said = capsys.readouterr().err
        assert "none" not in said.replace("cells are none", "")
        assert "n.d." not in said
        return shlex.split(next(line for line in said.splitlines() if line.startswith("  gratis ")))[1:]

    assert run(command) == 2
    fixed = printed()
    assert fixed[fixed.index("--ignore") + 1] == "u"
    assert fixed[fixed.index("--private-levels") + 1] == "t's"
    assert run(fixed) == 0  # a dry run reads no cell
    capsys.readouterr()
    fixed.remove("--dry-run")
    del fixed[fixed.index("--missing-target") : fixed.index("--missing-target") + 2]
    assert run(fixed) == 2
    whole = printed()
    assert whole[whole.index("--numeric") + 1] == '"a, b",c d'
    assert whole[whole.index("--missing-target") + 1] == "leave-out"
    assert run([*whole, "--model", "linear", "--no-audit", "--no-report"]) == 0


def test_the_python_of_a_report_runs_as_printed_and_is_the_same_release(
    homes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Public levels, so that nothing depends on the noise; the rows that are held out too."""
    command = ["fit", str(homes), "--target", "price", "--levels", "town=Rome,Oslo", "--ignore", "seller_id"]
    command += ["--missing-target", "leave-out", "--hold-out", "0.2", "--neighbouring", "zero-out", "--no-audit"]
    command += ["--epsilon", "2", "--delta", "1e-5", "--separator", ";", "--decimal", ",", "--no-report"]
    assert run([*command, "--output", str(tmp_path / "out")]) == 0
    saved = load_model(tmp_path / "out" / "model.gratis")
    program = str(saved.context["python"])
    assert "DPTableRegressor(" in program
    assert str(tmp_path) not in program
    shutil.copy(homes, tmp_path / homes.name)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(program, found)
    again = load_model(tmp_path / "model.gratis")
    assert again.estimator.certificate_.event == saved.estimator.certificate_.event
    assert again.estimator.certificate_.assumptions == saved.estimator.certificate_.assumptions
    assert again.context["table"] == saved.context["table"]
    assert [one["quantity"] for one in found["model"].held_out_scores_][:2] == ["r_squared", "mean_absolute_error"]
    assert found["model"].predict(homes.name).shape == (2000,)


def test_the_python_of_a_classifier_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    size = rng.normal(size=1500)
    pd.DataFrame({"size": size, "kind": np.where(size > 0, "b", "a")}).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    command = ["fit", "t.csv", "--target", "kind", "--epsilon", "2", "--delta", "1e-5", "--no-audit", "--no-report"]
    assert run(command) == 0
    saved = load_model(tmp_path / "gratis-fit" / "model.gratis")
    found: dict[str, Any] = {}
    exec(str(saved.context["python"]), found)
    assert found["model"].certificate_.event == saved.estimator.certificate_.event
    assert found["model"].certificate_.assumptions == saved.estimator.certificate_.assumptions
    assert set(found["model"].predict("t.csv")) == {"a", "b"}


def test_balanced_classes_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--balanced` moves the intercepts of a classifier, and is refused where there are no classes."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 2))
    rare = np.where(2 * x[:, 0] + rng.logistic(size=3000) > 4, "yes", "no")
    lines = ["a,b,rare", *(f"{a},{b},{r}" for (a, b), r in zip(x, rare, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    common = ["--epsilon", "4", "--delta", "1e-5", "--output", str(tmp_path / "out"), "--no-report", "--no-audit"]
    assert run(["fit", str(tmp_path / "t.csv"), "--target", "rare", "--classes", "no,yes", "--balanced", *common]) == 0
    model = load_model(tmp_path / "out" / "model.gratis").estimator
    assert (model.predict(x) == 1).mean() > 1.3 * (rare == "yes").mean()  # without it: fewer than there are
    assert run(["fit", str(tmp_path / "t.csv"), "--target", "b", "--ignore", "rare", "--balanced", *common]) == 2
    assert "weights of classes" in capsys.readouterr().err


@pytest.mark.slow
def test_compare_runs_by_the_fix_that_it_prints(homes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(homes), "--target", "price", "--epsilon", "1"]) == 2
    said = capsys.readouterr().err
    printed = re.search(r"^  (gratis compare .*)$", said, re.MULTILINE)
    assert printed
    assert "--missing-target" not in said
    assert run(shlex.split(printed[1])[1:]) == 0
    assert "n = 2000" in capsys.readouterr().out


def test_a_column_without_a_common_level_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "t.csv"
    frame = pd.DataFrame({"x": rng.normal(size=900), "nick": [f"n{i}" for i in range(900)]})
    frame.assign(price=3 * frame["x"]).to_csv(path, index=False)
    command = ["fit", str(path), "--target", "price", *BUDGET, "--output", str(tmp_path / "o")]
    assert run([*command, "--private-levels", "nick"]) == 0
    assert "none of 'nick', which is left out; they are in" in capsys.readouterr().err


def test_a_plan_for_another_file_is_refused_with_both_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan = tmp_path / "t.csv", tmp_path / "plan.json"
    pd.DataFrame({"x": np.arange(50) / 7, "price": np.arange(50) / 3}).to_csv(path, index=False)
    sizes = ["--n", "60", "--d", "2", "--epsilon", "1", "--delta", "1e-5"]
    assert run(["plan", "linear", *sizes, "--output", str(plan)]) == 0
    assert run(["fit", str(path), "--target", "price", "--plan", str(plan)]) == 2
    said = capsys.readouterr().err
    assert "for 60 rows, 2 columns" in said
    assert "this file has 50 rows, 1 columns" in said


def test_levels_of_a_stopped_run_are_kept_and_offered(
    homes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were paid for: no later run overwrites them, and one that uses them says so in its certificate."""
    told = ["--ignore", "seller_id", "--missing-target", "leave-out", "--output", str(tmp_path / "out")]
    command = ["fit", str(homes), "--target", "price", *BUDGET, *told]
    with monkeypatch.context() as stopped:

        def stop(*_: object, **__: object) -> None:
            raise GratisError("stopped")

        stopped.setattr("gratis.estimators.table_job.remaining_budget", stop)
        assert run([*command, "--private-levels", "town"]) == 2
    paid = (tmp_path / "out" / "levels.json").read_bytes()
    capsys.readouterr()
    assert run([*command, "--private-levels", "town"]) == 0
    assert "--schema" in capsys.readouterr().err
    assert (tmp_path / "out" / "levels-1.json").read_bytes() == paid
    assert run([*command, "--schema", str(tmp_path / "out" / "levels-1.json"), "--force"]) == 0
    assert "paid for levels" not in capsys.readouterr().err
    certificate = Certificate.read(tmp_path / "out" / "certificate.json")
    assert "earlier-levels" in certificate.assumptions
    assert "town=Oslo" in load_model(tmp_path / "out" / "model.gratis").table()[0].names  # type: ignore[index]
    assert (tmp_path / "out" / "levels-1.json").read_bytes() == paid


def test_a_refusal_begins_with_the_command_that_works_and_has_a_line_a_column(
    homes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", str(homes), "--target", "price", *BUDGET]) == 2
    first, command, *lines = capsys.readouterr().err.splitlines()
    assert first.startswith("gratis: ")
    assert command.startswith("  gratis fit ")
    assert [line.split(" ", 1)[0] for line in lines] == ["'town'", "'seller_id'", "rows", "other"]


def test_ids_with_several_rows_hint_at_the_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "t.csv"
    ids = rng.integers(0, 100, 600)
    frame = pd.DataFrame({"patient_id": ids, "row_id": range(600), "x": rng.normal(size=600)})
    frame.assign(y=frame["x"] + 0.5).to_csv(path, index=False)
    for more, hinted in (([], True), (["--ignore", "patient_id,row_id"], True), (["--unit", "patient_id"], False)):
        assert run(["fit", str(path), "--target", "y", *BUDGET, "--dry-run", *more]) == 0
        said = capsys.readouterr().err
        assert ("--unit patient_id" in said) is hinted
        assert "--unit row_id" not in said
    frame.assign(y=frame["x"] + 0.5, t="a").to_csv(path, index=False)
    assert run(["fit", str(path), "--target", "y", *BUDGET, "--dry-run"]) == 2
    assert "--unit patient_id" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "8 whole numbers of 'visits' are taken for classes, because there are no more than 32 of them"),
        (["--model", "linear"], "a number is predicted, because the model is linear"),
        (["--task", "regression"], "regression of 'visits'"),
    ],
)
def test_a_count_says_which_task_was_taken_and_why(
    more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": np.arange(400) / 7, "visits": np.arange(400) % 8}).to_csv(path, index=False)
    command = ["fit", str(path), "--target", "visits", "--epsilon", "1", "--delta", "1e-5", "--dry-run"]
    assert run([*command, *more]) == 0
    assert words in " ".join(capsys.readouterr().err.split())
