from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gratis.cli.ledger import app
from gratis.ledger import Ledger, content_fingerprint
from gratis.records.errors import GratisError
from gratis.records.events import GaussianRelease


def _run(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budgets.ledger"


def test_create_show_and_verify(path, tmp_path):
    data = tmp_path / "rows.csv"
    data.write_bytes(b"1,2")
    made = json.loads(_run("create", path, "--name", "a", "--epsilon", 1, "--delta", 1e-5, "--json"))
    assert (made["name"], made["epsilon"], made["delta"], made["neighbouring"]) == ("a", 1.0, 1e-5, "replace-one")
    assert made["mu"] == pytest.approx(0.26805, abs=1e-5)
    _run("create", path, "--name", "b", "--mu", 1, "--neighbouring", "zero-out", "--fingerprint-of", data)
    event = GaussianRelease(sensitivity=1.0, noise_std=5.0, neighbouring="replace-one")
    Ledger.open(path).reserve("a", event, purpose="tuning")
    shown = json.loads(_run("show", path, "--name", "a", "--json"))
    assert shown["spent_mu"] == pytest.approx(0.2)
    assert shown["remaining_mu"] == pytest.approx((shown["mu"] ** 2 - 0.04) ** 0.5)
    assert (shown["reservations"], shown["by_purpose"]) == (1, {"tuning": 1})
    assert [r["sequence"] for r in shown["never_committed"]] == [3]
    everything = json.loads(_run("show", path, "--json"))
    assert [budget["name"] for budget in everything["budgets"]] == ["a", "b"]
    assert everything["budgets"][1]["fingerprint"]["sha256"] == content_fingerprint(b"1,2")
    found = json.loads(_run("verify", path, "--json", "--anchor", made["head"]))
    assert found == {"valid": True, "entries": 4, "head": shown["head"], "names": ["a", "b"], "every_byte": True}
    assert everything["head"] == found["head"]


def test_text_for_people(path):
    assert "mu 0 spent, 1 left of 1" in _run("create", path, "--name", "a", "--mu", 1)
    Ledger.open(path).reserve("a", GaussianRelease(sensitivity=1.0, noise_std=5.0, neighbouring="replace-one"))
    assert "never committed: entry 2, training" in _run("show", path, "--name", "a")
    assert "1-GDP, replace-one" in _run("show", path)
    assert "valid: 3 entries, 1 budgets, checked: every byte" in _run("verify", path)


def test_an_empty_ledger_can_be_shown(path):
    head = Ledger.create(path).head
    assert json.loads(_run("show", path, "--json")) == {"head": head, "budgets": []}


@pytest.mark.parametrize(
    "options",
    [
        ["--mu", "-1"],
        ["--mu", "nan"],
        ["--epsilon", "1"],
        ["--epsilon", "1", "--delta", "1"],
        ["--mu", "1", "--epsilon", "1", "--delta", ".1"],
        ["--mu", "1", "--neighbouring", "cousins"],
        [],
    ],
)
def test_bad_input_is_refused_and_nothing_written(path, options):
    with pytest.raises(GratisError):
        _run("create", path, "--name", "a", *options)
    assert list(path.parent.iterdir()) == []


def test_damage_is_refused(path):
    _run("create", path, "--name", "a", "--mu", 1)
    image = bytearray(path.read_bytes())
    image[-1] ^= 1
    path.write_bytes(image)
    for command in (["show", path], ["verify", path, "--json"], ["create", path, "--name", "b", "--mu", 1]):
        with pytest.raises(GratisError, match="damaged"):
            _run(*command)
