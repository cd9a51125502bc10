"""From a stranger's file to a model: what is shown before, the fix that a refusal prints, levels that are paid for."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gratis.accounting import verify_certificate
from gratis.cli.program import run
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
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


def test_the_fixes_that_are_printed_lead_to_a_model(
    homes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger.create(tmp_path / "l", {"homes": Budget(epsilon=2.0, delta=1e-5)})
    output = ["--output", str(tmp_path / "out"), "--ledger", str(tmp_path / "l"), "--budget", "homes"]
    command = ["fit", str(homes), "--target", "price", *BUDGET, *output]
    assert run(command) == 2
    advice = re.search(r"add (--private-levels .*?), which", capsys.readouterr().err)
    assert advice
    assert advice[1] == "--private-levels town --ignore seller_id"
    command += shlex.split(advice[1])
    assert run(command) == 2
    said = capsys.readouterr().err
    assert "index" in said
    assert "common levels are found within the budget" in said
    assert "--missing-target leave-out" in said
    assert not ledger.status("homes").never_committed
    assert run([*command, "--missing-target", "leave-out"]) == 0
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
    assert schema["area"] == {"kind": "numeric"}
    assert "'seller_id' looks like an identifier" in said.err


def test_encodings_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(("c,y\n" + "Zoë,1.5\nb,2.5\n" * 50).encode("latin-1"))
    command = ["fit", str(path), "--target", "y", *BUDGET, "--hash", "2", "--output", str(tmp_path / "out")]
    assert run(command) == 2
    assert "--encoding windows-1252" in capsys.readouterr().err
    assert run([*command, "--encoding", "windows-1252"]) == 0
