"""What the page asks: a table without its cells, a plan, one spending, a model. Wrong input is one sentence."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gratis.estimators.model_file import load_model
from gratis.ledger import Ledger
from gratis.ledger.spending import price
from gratis.records.budget import Budget
from gratis.records.events import Composition, GaussianRelease
from gratis.studio.guard import TOKEN_HEADER
from gratis.studio.server import Studio

PORT = 8765
COLUMNS = {"age": {"kind": "numeric"}, "city": {"kind": "categorical", "levels": ["Bern", "Chur"]}}
FIT = {
    "file": "wages.csv", "target": "wage", "task": "auto", "classes": "", "columns": COLUMNS, "epsilon": 1.0,
    "delta": 1e-6, "neighbouring": "replace-one", "model": "linear", "hold_out": 0, "ledger": "budgets.ledger",
    "budget": "wages", "name": "first",
}  # fmt: skip


class Page:
    """The page's requests, with its token."""

    def __init__(self, studio: Studio, clients: Any) -> None:
        self.studio = studio
        base = f"http://127.0.0.1:{PORT}"
        self.client = clients(studio.app(), base_url=base, headers={TOKEN_HEADER: studio.token, "origin": base})

    def ask(self, name: str, /, **body: Any) -> dict[str, Any]:
        answer = self.client.post(f"/api/{name}", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def refused(self, name: str, /, **body: Any) -> str:
        answer = self.client.post(f"/api/{name}", json=body)
        assert answer.status_code == 400, answer.text
        sentence: str = answer.json()["error"]
        assert sentence
        assert "\n" not in sentence
        return sentence

    def wait(self, name: str) -> dict[str, Any]:
        while (found := self.ask("run", name=name))["state"] == "running":
            time.sleep(0.2)
        return found


@pytest.fixture
def page(folder: Path, clients: Any) -> Page:
    return Page(Studio(folder, port=PORT), clients)


def new_budget(page: Page, **more: Any) -> dict[str, Any]:
    stated = {"name": "wages", "file": "budgets.ledger", "epsilon": 2.0, "delta": 1e-6, "neighbouring": "replace-one"}
    return page.ask("create-budget", **stated | more)


def test_names_and_types_are_shown_and_no_cell(page: Page) -> None:
    found = page.ask("table", file="wages.csv")
    assert found["rows"] == 400
    types = {column["name"]: column["type"] for column in found["columns"]}
    assert set(types) == {"age", "city", "wage"}
    assert "numbers" in types["age"]
    assert "text" in types["city"]
    assert found["columns"][0]["reading"] == {"kind": "numeric"}
    assert [column["undecided"] for column in found["columns"]] == [False, True, False]
    for hidden in ("Zaphod", "Bern", "Chur"):
        assert hidden not in json.dumps(found)
    assert page.ask("encoded", columns=COLUMNS, target="wage") == {"columns": 3, "widths": {"age": 1, "city": 2}}
    later = page.ask("encoded", columns=COLUMNS | {"city": {"kind": "categorical", "private": True}}, target="wage")
    assert later == {"columns": 1, "widths": {"age": 1, "city": None}}


def test_wrong_input_is_one_sentence_and_spends_nothing(page: Page) -> None:
    assert "below the folder" in page.refused("table", file="../../etc/passwd")
    assert "no file" in page.refused("table", file="nothing.csv")
    new_budget(page)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"target": "nothing"}, "no column"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": "much"}, "epsilon"),
        ({"delta": 0.5}, "delta"),
        ({"name": "../up"}, "name"),
        ({"ledger": "other.ledger"}, "no file"),
        ({"budget": "other"}, "no budget"),
        ({"model": "oracle"}, "unknown model"),
        ({"columns": {"city": {"kind": "categorical"}}}, "levels"),
        ({"columns": {"city": {"kind": "categorical", "levels": []}}}, "levels"),
        ({"columns": {"nothing": "numeric"}}, "no column"),
        ({"columns": None}, "no columns"),
        ({"hold_out": 0.9}, "held-out"),
        ({"neighbouring": "zero-out"}, "replace-one"),
        ({"task": "classification", "classes": "a"}, "classes"),
    ]
    for change, word in wrong:
        assert word in page.refused("plan", **FIT | change), change
    assert "again" in page.refused("spend", ticket="guess")
    assert "ends with .ledger" in page.refused("create-budget", name="x", file="x.txt", epsilon=1, delta=1e-6)
    assert "below the folder" in page.refused("create-budget", name="x", file="../x.ledger", epsilon=1, delta=1e-6)
    assert "already" in page.refused("create-budget", name="wages", file="budgets.ledger", epsilon=9, delta=1e-6)
    assert Ledger.open(page.studio.folder.root / "budgets.ledger").status("wages").reservations == 0
    assert not (page.studio.folder.root / "gratis-studio").exists()


@pytest.mark.slow
def test_from_a_plan_to_a_certified_model_once(page: Page) -> None:
    new_budget(page)
    plan = page.ask("plan", **FIT)
    assert plan["rows"] == 400
    assert plan["columns"] == 3
    assert plan["fits"] is True
    assert plan["status"]["reservations"] == 0
    assert "gratis fit wages.csv" in plan["command"]
    assert "--target=wage" in plan["command"]
    other, third = page.ask("plan", **FIT | {"name": "second"}), page.ask("plan", **FIT | {"name": "third"})

    assert page.ask("spend", ticket=plan["ticket"]) == {"name": "first"}
    assert "confirmed already" in page.refused("spend", ticket=plan["ticket"])
    assert page.ask("runs")["running"] == "first"
    refusal = page.refused("spend", ticket=other["ticket"])  # another tab that shows the same budget
    assert "under way" in refusal or "ledger changed" in refusal
    done = page.wait("first")
    assert done["state"] == "done"
    assert [step for step, ended in done["steps"] if not ended] == []
    assert "ledger changed" in page.refused("spend", ticket=third["ticket"])
    assert "already" in page.refused("plan", **FIT)

    root = page.studio.folder.root
    status = Ledger.open(root / "budgets.ledger").status("wages")
    assert status.reservations == 1
    assert not status.never_committed
    certificate = load_model(root / done["files"]["model"]).estimator.certificate_
    assert json.loads((root / "gratis-studio/first/plan.json").read_text())["event"] == certificate.event.to_json()
    assert page.ask("start")["models"] == ["gratis-studio/first/model.gratis"]
    assert page.ask("runs")["runs"][0]["state"] == "done"

    _look(page, done)
    (root / "wages.csv").write_text((root / "wages.csv").read_text() + "30,Bern,40\n")
    last = page.ask("plan", **FIT | {"name": "fourth"})
    (root / "wages.csv").write_text((root / "wages.csv").read_text() + "31,Bern,41\n")
    assert "table changed" in page.refused("spend", ticket=last["ticket"])
    too_much = page.ask("plan", **FIT | {"name": "fifth", "epsilon": 3.0})
    assert too_much["fits"] is False


def _look(page: Page, done: dict[str, Any]) -> None:
    model = page.ask("model", file=done["files"]["model"])
    assert model["certificate"]["problems"] == []
    assert {c["name"] for c in model["coefficients"]} == {"age", "city=Bern", "city=Chur"}
    assert model["inputs"][1]["levels"] == ["Bern", "Chur"]
    values = {"age": "40", "city": "Bern"}
    found = page.ask("predict", file=done["files"]["model"], values=values)
    saved = load_model(page.studio.folder.root / done["files"]["model"])
    assert found["prediction"] == pytest.approx(float(saved.estimator.predict([[40.0, 1.0, 0.0]])[0]))
    assert page.ask("predict", file=done["files"]["model"], values={})["prediction"]
    assert "must be a number" in page.refused("predict", file=done["files"]["model"], values={"age": "old"})
    page.refused("predict", file=done["files"]["model"], values={"age": 3})
    assert "not a model file" in page.refused("model", file=_broken(page))
    report = page.client.get(model["links"]["report"])
    assert report.status_code == 200
    assert "sandbox" in report.headers["content-security-policy"]
    assert "script" not in report.headers["content-security-policy"]
    wrong = model["links"]["report"].replace("report.html", "model.gratis")
    assert page.client.get(wrong).status_code == 403
    assert page.client.get("/file/x/wages.csv").status_code == 403
    assert "attachment" in page.client.get(model["links"]["model"]).headers["content-disposition"]


def _broken(page: Page) -> str:
    (page.studio.folder.root / "broken.gratis").write_bytes(b"PK nonsense")
    return "broken.gratis"


def test_a_fit_that_was_killed_says_what_it_cost(page: Page) -> None:
    """A folder and a ledger as a fit leaves them that was killed after its reservation."""
    new_budget(page)
    root = page.studio.folder.root
    place = root / "gratis-studio" / "lost"
    place.mkdir(parents=True)
    ledger = Ledger.open(root / "budgets.ledger")
    record = {"file": "wages.csv", "ledger": "budgets.ledger", "budget": "wages", "started": "2026-01-01 00:00:00"}
    (place / "run.json").write_text(json.dumps(record | {"entries": ledger.status("wages").entries}))
    assert "nothing was spent" in page.ask("run", name="lost")["words"][1]
    ledger.reserve("wages", GaussianRelease(sensitivity=1.0, noise_std=10.0, neighbouring="replace-one"))
    (place / "fit.log").write_text("Model: linear\ngratis: stopped; it is spent\n")
    found = page.ask("run", name="lost")
    assert found["state"] == "failed"
    assert found["words"][0] == "stopped; it is spent"
    assert "stays spent" in found["words"][1]
    assert page.ask("ledgers")["ledgers"][0]["budgets"][0]["never_committed"] == 1
    (root / "budgets.ledger").write_bytes(b"damaged")
    assert page.ask("ledgers")["ledgers"][0]["error"]
    assert "not known" in page.ask("run", name="lost")["words"][1]


def test_an_additive_model_shows_its_shapes_and_what_they_add(page: Page) -> None:
    import numpy as np

    from gratis import DPAdditiveClassifier, save_model

    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = (X[:, 0] + rng.normal(size=3000) > 0).astype(int)
    fitted = DPAdditiveClassifier(epsilon=4.0, delta=1e-6, classes=[0, 1]).fit(X, y)
    save_model(page.studio.folder.root / "shapes.gratis", fitted)
    model = page.ask("model", file="shapes.gratis")
    assert len(model["curves"]) == 3
    assert model["curves"][0]["name"] == "column 0"
    assert len(model["curves"][0]["grid"]) == len(model["curves"][0]["effect"])
    found = page.ask("predict", file="shapes.gratis", values={"column 0": "2", "column 1": "0", "column 2": "0"})
    assert found["prediction"] == "1"
    assert sum(found["probabilities"].values()) == pytest.approx(1.0)
    assert set(found["parts"]) >= {"constant", "column 0", "column 1", "column 2"}


def test_a_budget_in_mu_and_a_missing_one_are_shown(page: Page) -> None:
    assert page.ask("ledgers") == {"ledgers": []}
    Ledger.create(page.studio.folder.root / "mu.ledger", {"census": Budget(mu=0.5)})
    (found,) = page.ask("ledgers")["ledgers"]
    assert found["budgets"][0]["left_epsilon"] is None
    assert found["budgets"][0]["remaining_mu"] == 0.5


def test_a_worthless_fit_needs_a_yes(page: Page, folder: Path) -> None:
    lines = (folder / "wages.csv").read_text(encoding="utf-8").splitlines()[:61]
    (folder / "wages.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    new_budget(page)
    plan = page.ask("plan", **FIT)
    assert "60 rows of 3 columns" in plan["worthless"]
    assert plan["command"].endswith("--yes")
    for answer in ({}, {"yes": False}, {"yes": "yes"}):
        assert "nothing was spent" in page.refused("spend", ticket=plan["ticket"], **answer)
    assert Ledger.open(folder / "budgets.ledger").status("wages").reservations == 0
    assert page.ask("spend", ticket=plan["ticket"], yes=True) == {"name": "first"}
    assert page.wait("first")["state"] == "done"
    assert page.ask("plan", **FIT | {"name": "second", "epsilon": 50.0})["worthless"] is None


def test_prices_of_all_modes_are_what_the_ledger_charges(page: Page, folder: Path) -> None:
    """A score costs nothing more; levels that are found first are within the same price."""
    new_budget(page, epsilon=50.0)
    books = Ledger.open(folder / "budgets.ledger")
    private = COLUMNS | {"city": {"kind": "categorical", "private": True}}
    for name, more in {
        "plain": {},
        "scored": {"hold_out": 0.2},
        "levels": {"columns": private, "hold_out": 0.2},
    }.items():
        before = books.status("wages")
        plan = page.ask("plan", **FIT | {"name": name, "epsilon": 4.0} | more)
        assert plan["fits"] is True
        assert plan["price"].startswith("epsilon 4 at delta 1e-06")
        page.ask("spend", ticket=plan["ticket"], yes=True)
        assert page.wait(name)["state"] == "done"
        status = books.status("wages")
        taken = status.releases[before.reservations :]
        assert len(taken) == (2 if name == "levels" else 1)
        events = Composition(tuple(one.event for one in status.all_reservations[before.reservations :]))
        assert price(status.budget, (), events).words == plan["price"]
        if name != "levels":
            assert taken[0].price == plan["price"]
