from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import gratis
from gratis.accounting import calibrate_mu
from gratis.cli.ledger import app
from gratis.ledger import Ledger, content_fingerprint
from gratis.records.budget import Budget
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
    assert "a has 1-GDP, replace-one" in _run("create", path, "--name", "a", "--mu", 1)
    assert "spent: mu 0 of 1\n  left: mu 1\n" in _run("show", path, "--name", "a")
    Ledger.open(path).reserve("a", GaussianRelease(sensitivity=1.0, noise_std=5.0, neighbouring="replace-one"))
    shown = _run("show", path, "--name", "a")
    assert "training  -      never committed: spent  mu 0.2" in shown
    assert "spent: mu 0.2 of 1\n" in shown
    assert "1-GDP, replace-one" in _run("show", path)
    assert "valid: 3 entries, 1 budgets, checked: every byte" in _run("verify", path)


def test_the_owner_sees_every_release_and_what_is_left(path):
    """Date, purpose, model, digest, epsilon and mu of each; what is left in epsilon; squares are said to be squares."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    ledger = Ledger.create(path, {"people": Budget(epsilon=2.0, delta=1e-6)})
    model = gratis.DPLinearRegression(epsilon=1.0, delta=1e-6, ledger=ledger, dataset="people").fit(X, X @ [1.0, 2.0])
    loose = gratis.DPLogisticRegression(epsilon=0.5, delta=1e-6, ledger=path, dataset="people", classes=[0, 1])
    loose.fit(X, (X[:, 0] > 0).astype(int))
    shown = json.loads(_run("show", path, "--name", "people", "--json"))
    first, second = shown["releases"]
    assert (first["model"], second["model"]) == ("DPLinearRegression", "DPLogisticRegression")
    assert first["released"] == model.certificate_.released == model.certificate_.ledger_entry["released"]
    assert first["mu"] == model.certificate_.mu
    assert (first["committed"], first["purpose"]) == (True, "training")
    # What is left in epsilon is what the ledger takes, and no more than a last digit below what it refuses.
    left = shown["left_epsilon"]
    for epsilon, fits in ((left, True), (left * 1.01, False)):
        mu = calibrate_mu(Budget(epsilon=epsilon, delta=1e-6))
        event = GaussianRelease(sensitivity=1.0, noise_std=(1 + 1e-12) / mu, neighbouring="replace-one")
        assert ledger.price("people", event).fits is fits
    text = _run("show", path)
    assert shown["releases"][0]["price"] in text
    assert f"{first['time'][:16].replace('T', ' ')}  training  DPLinearRegression    {first['released'][:12]}" in text
    assert "squares of mu add up" in text
    squares = re.search(r"add up, ([\d.]+)² \+ ([\d.]+)² = ([\d.]+)²", text)
    a, b, c = map(float, squares.groups())
    assert a**2 + b**2 == pytest.approx(c**2, rel=1e-3)
    assert f"left: one more release of epsilon {left:.3g} at delta 1e-06" in text


def test_releases_of_others_do_not_travel_with_a_model(path):
    """The status that a model file carries counts releases, and does not list them."""
    ledger = Ledger.create(path, {"a": Budget(mu=1.0)})
    ledger.reserve("a", GaussianRelease(sensitivity=1.0, noise_std=5.0, neighbouring="replace-one"), note="model: X")
    assert "releases" not in ledger.status("a").to_json()


def test_an_entry_of_before_digests_is_read_and_a_wrong_digest_refused(path):
    ledger = Ledger.create(path, {"a": Budget(mu=1.0)})
    event = GaussianRelease(sensitivity=1.0, noise_std=5.0, neighbouring="replace-one")
    ticket = ledger.reserve("a", event)
    with pytest.raises(GratisError, match="SHA-256"):
        ledger.commit(ticket.id, event, released="abc")
    assert ledger.commit(ticket.id, event).released is None  # as earlier versions wrote it: no such field
    assert "released" not in ledger._read()[0].entries[-1].payload


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
