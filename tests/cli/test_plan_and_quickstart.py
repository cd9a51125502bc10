"""`gratis plan one-pass` and `gratis quickstart` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gratis.accounting import verify_certificate
from gratis.cli.program import run
from gratis.records.certificates import Certificate

KNOWN = ["--signal-variance", "1", "--label-noise-variance", "0.25", "--spectrum", "isotropic"]


def plan(*arguments: str) -> int:
    return run(["plan", "one-pass", *arguments])


def test_json_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--n", "2000", "--d", "200", "--mu", "0.5", *KNOWN, "--algorithm", "one-pass", "--schedule", "poly:0.5"]
    assert plan(*command, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["algorithm"] == "one-pass"
    assert data["schedule"] == "poly:0.5"
    assert data["predicted_excess_risk"] == pytest.approx(0.20791, rel=0.01)
    assert data["guarantee"]["mu"] <= 0.5
    assert data["guarantee"]["neighbouring"] == "replace-one"
    assert {"algorithm", "schedule", "predicted_excess_risk"} <= set(data["alternatives"][0])
    assert data["settings"]["rho"] == 0.5


@pytest.mark.slow
def test_words_and_a_spectrum_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "eigenvalues.txt"
    path.write_text("3\n1\n0.5\n0.25\n")
    facts = ["--signal-variance", "1", "--label-noise-variance", "0.25", "--spectrum", str(path)]
    budget = ["--epsilon", "1", "--delta", "1e-5", "--neighbouring", "zero-out"]
    assert plan("--n", "5000", "--d", "4", *budget, *facts, "--algorithm", "one-pass", "--target-r2", "0.7") == 0
    words = capsys.readouterr().out
    assert "zero-out" in words
    assert "rows" in words
    assert "eigenvalues.txt" in words


@pytest.mark.parametrize(
    "arguments",
    [
        ["--n", "0", "--d", "5", "--mu", "1"],
        ["--n", "100", "--d", "-5", "--mu", "1"],
        ["--n", "100", "--d", "5"],
        ["--n", "100", "--d", "5", "--mu", "inf"],
        ["--n", "100", "--d", "5", "--epsilon", "1"],
        ["--n", "100", "--d", "5", "--mu", "1", "--epsilon", "1", "--delta", "1e-5"],
        ["--n", "100", "--d", "5", "--mu", "1", "--signal-variance", "-1"],
        ["--n", "100", "--d", "5", "--mu", "1", "--spectrum", "power:2"],
        ["--n", "100", "--d", "5", "--mu", "1", "--spectrum", "no-such-file"],
        ["--n", "100", "--d", "5", "--mu", "1", "--schedule", "poly:-1"],
        ["--n", "100", "--d", "5", "--mu", "1", "--schedule", "cosine"],
        ["--n", "100", "--d", "5", "--mu", "1", "--algorithm", "adam"],
        ["--n", "100", "--d", "5", "--mu", "1", "--neighbouring", "x"],
    ],
)
def test_bad_input(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


def test_quickstart_from_plan_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    assert run(["quickstart", "--output", str(output), "--audit-runs", "120", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["audit"]["alarm"] is False
    assert data["guarantee"]["epsilon"] <= 2.0
    certificate = Certificate.read(output / "certificate.json")
    assert verify_certificate(certificate) == []
    assert certificate.ledger_entry is not None
    page = (output / "report.html").read_text()
    assert "replace-one" in page
    assert "http" not in page.split("</style>")[1].replace("https://www.w3.org", "")
    assert run(["ledger", "verify", str(output / "budget.ledger")]) == 0
    assert run(["certificate", "verify", str(output / "certificate.json")]) == 0


def test_quickstart_refuses_a_bad_budget_and_writes_nothing(tmp_path: Path) -> None:
    assert run(["quickstart", "--output", str(tmp_path / "out"), "--epsilon", "-1"]) == 2
    assert not (tmp_path / "out").exists()
