"""In real Chromium: from a CSV file to a certified model without a terminal; wrong input, two tabs, a killed server."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gratis.accounting import verify_certificate
from gratis.cli.ledger import app as ledger_command
from gratis.estimators.model_file import load_model
from gratis.ledger import Ledger
from gratis.records.budget import Budget

selenium = pytest.importorskip("selenium", reason="browser tests are driven by selenium")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no chromium and chromedriver are installed on this machine"
)
# Without a sandbox, because tests may run as root; nothing is asked of the network.
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


class Browser:
    """A window, and what a user does in it: waits are for what happens, not for a time."""

    def __init__(self, profile: Path) -> None:
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service

        options = ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = Chrome(options=options, service=Service(str(DRIVER)))

    def until(self, condition: Callable[[], Any]) -> Any:
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.support.ui import WebDriverWait

        waiting = WebDriverWait(self.driver, 120, 0.1, ignored_exceptions=(WebDriverException, AssertionError))
        return waiting.until(lambda _: condition())

    def one(self, selector: str) -> Any:
        found = self.driver.find_element("css selector", selector)
        assert found.is_displayed()
        return found

    def click(self, selector: str) -> None:
        self.until(lambda: self.one(selector).is_enabled())
        self.until(lambda: self.one(selector).click() or True)

    def button(self, text: str) -> None:
        path = f"//button[not(ancestor::*[@hidden])][.={text!r}]"
        self.until(lambda: self._clicked(self.driver.find_element("xpath", path)))

    def _clicked(self, element: Any) -> bool:
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        return True

    def step(self, name: str) -> None:
        self.click(f"nav [data-view={name}]")
        self.until(lambda: self.one(f"#{name}"))

    def choose(self, label: str, value: str) -> None:
        self._set(label, value, "change")

    def type(self, label: str, value: str) -> None:
        self._set(label, value, "input")

    def _set(self, label: str, value: str, event: str) -> None:
        """Find a field by its label, as a user does."""
        script = """
            const [label, value] = arguments;
            const named = (l) => l.firstChild && l.firstChild.textContent.trim() === label && l.offsetParent;
            const tag = [...document.querySelectorAll("label[for]")].find(named);
            const field = tag ? document.getElementById(tag.htmlFor)
                : [...document.querySelectorAll("[aria-label]")].find((f) => f.ariaLabel === label && f.offsetParent);
            field.value = value;
            for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {bubbles: true}));
            return field.value === value;
        """
        assert self.until(lambda: self.driver.execute_script(script, label, value)), (label, event)

    def says(self, text: str, selector: str = "main") -> str:
        return str(self.until(lambda: (found := self.one(selector).text) and text in found and found))

    def folded(self, selector: str) -> list[str]:
        """The texts of elements, shown or not."""

        def texts() -> list[str]:
            found = self.driver.find_elements("css selector", selector)
            return [one.get_attribute("textContent") for one in found]

        listed: list[str] = self.until(texts)
        return listed

    def quit(self) -> None:
        self.driver.quit()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    found = Browser(tmp_path / "profile")
    yield found
    found.quit()


def choose_table(browser: Browser) -> None:
    browser.step("data")
    browser.choose("File", "wages.csv")
    browser.says("columns after encoding")
    browser.choose("How the levels of city are known", "levels")
    browser.choose("Public levels of city", "Bern, Chur")
    browser.until(lambda: browser.one("[data-width=city]").text == "2 columns")


def show_plan(browser: Browser, name: str, hold_out: str = "0") -> None:
    browser.step("spend")
    browser.until(lambda: browser.one("#plan-fit").is_enabled())
    browser.choose("Model", "linear")
    browser.choose("Held out for a private score", hold_out)
    browser.type("Name of this run", name)
    browser.click("#plan-fit")
    browser.until(lambda: browser.one("#spend-button").is_enabled())


def spend(browser: Browser) -> None:
    browser.click("#spend-button")
    browser.click("#confirm-button")


def test_from_a_table_to_a_certified_model(browser: Browser, started: Callable[[], Any], folder: Path) -> None:
    studio = started()
    browser.driver.get(studio.address)

    # Plan: the picture answers, the key has left the address bar, a wrong number is marked.
    browser.until(lambda: browser.one("#plan").get_attribute("data-answered"))
    assert "token" not in browser.driver.current_url
    assert browser.until(lambda: browser.one("#plan svg[role=img]").get_attribute("aria-label"))
    browser.says("recognised at 1 % false alarms", "#plan")
    browser.says("gratis plan", "#plan")

    # Data: no cell is shown.
    choose_table(browser)
    assert "Zaphod" not in browser.driver.page_source
    assert "400" in browser.one("#data").text

    # Wrong input is refused in a sentence, and spends nothing.
    browser.step("spend")
    browser.until(lambda: browser.one("#create-budget"))
    browser.type("ε in all", "-1")
    browser.click("#create-budget")
    browser.says("psilon must", "#alert")
    browser.type("ε in all", "2")
    browser.click("#create-budget")
    browser.says("100 % left", "#spend")
    browser.type("δ", "0.5")
    browser.click("#plan-fit")
    browser.says("not below one over the number of rows", "#alert")
    browser.type("δ", "0.000001")
    ledger = Ledger.open(folder / "budgets.ledger")
    assert ledger.status("wages").reservations == 0

    # Two tabs show the same budget, each with its own plan: one of them can spend.
    first = browser.driver.current_window_handle
    show_plan(browser, "first")
    browser.driver.switch_to.new_window("tab")
    browser.driver.get(studio.address)
    browser.until(lambda: browser.one("#plan"))
    choose_table(browser)
    show_plan(browser, "second")
    second = browser.driver.current_window_handle
    browser.driver.switch_to.window(first)
    spend(browser)
    browser.until(lambda: browser.one("#run-card"))
    browser.driver.switch_to.window(second)
    spend(browser)
    refusal = browser.until(lambda: browser.one("#alert").text)
    assert "under way" in refusal or "ledger changed" in refusal

    # The server is killed in the middle: the page says so, the training goes on, a new server tells of it.
    browser.driver.switch_to.window(first)
    state = browser.until(lambda: browser.one("#run-card").get_attribute("data-state"))
    studio.kill()
    if state == "running":
        browser.says("does not answer", "#alert")
    again = started()
    browser.driver.get(again.address)
    browser.until(lambda: browser.one(".view:not([hidden])"))
    browser.step("spend")
    if not browser.driver.find_elements("id", "run-card"):
        browser.button("first")
    browser.until(lambda: browser.one("#run-card").get_attribute("data-state") == "done")
    status = ledger.status("wages")
    assert status.reservations == 1
    assert not status.never_committed
    assert not (folder / "gratis-studio" / "second").exists()
    model = load_model(folder / "gratis-studio" / "first" / "model.gratis").estimator
    assert verify_certificate(model.certificate_) == []
    assert model.certificate_.ledger_entry["name"] == "wages"

    # Look: coefficients, a prediction of typed values, the report in a page of its own.
    browser.button("Look at the model")
    browser.says("The certificate was computed again and holds", "#look")
    browser.type("age", "40")
    browser.choose("city", "Bern")
    browser.click("#predict-button")
    browser.until(lambda: "prediction" in browser.one("#look form + div").text)
    browser.type("age", "old")
    browser.click("#predict-button")
    browser.says("must be a number", "#alert")
    browser.driver.execute_script("document.getElementById('alert').hidden = true; scrollTo(0, 0)")
    browser.click("#look a[href$='report.html']")
    browser.until(lambda: len(browser.driver.window_handles) == 3)
    browser.driver.switch_to.window(browser.driver.window_handles[-1])
    browser.until(lambda: "Private" in browser.driver.title)

    # Without the key nothing is shown; and no page ever broke the policy that loads nothing from elsewhere.
    browser.driver.switch_to.new_window("tab")
    browser.driver.get(again.address.partition("#")[0])
    browser.says("Open the address that", "main")
    assert "wages" not in browser.driver.page_source
    logged = [entry["message"] for entry in browser.driver.get_log("browser")]
    assert not [message for message in logged if "Content Security Policy" in message]


@pytest.mark.slow
def test_one_price_everywhere(browser: Browser, started: Callable[[], Any], folder: Path) -> None:
    """With a fifth held out: the plan, the dialog, the run, the ledger on the page, in the file and in the terminal."""
    Ledger.create(folder / "budgets.ledger", {"wages": Budget(epsilon=2.0, delta=1e-6)})
    browser.driver.get(started().address)
    browser.until(lambda: browser.one("#plan"))
    choose_table(browser)
    show_plan(browser, "scored", "0.2")
    price = r"epsilon [\d.]+ at delta 1e-06 \(mu [\d.]+\)"
    planned = re.search(price, browser.one("#price").text)
    assert planned is not None
    browser.click("#spend-button")
    asked = re.search(price, browser.until(lambda: browser.one("dialog[open]").text))
    browser.click("#confirm-button")
    browser.until(lambda: browser.one("#run-card").get_attribute("data-state") == "done")
    # Both stand in folded parts of the page.
    logged = re.search(rf"This run takes ({price}) from 'wages'", browser.folded("#run-card pre")[0])
    listed = browser.folded("table.releases tr")
    (entry,) = Ledger.open(folder / "budgets.ledger").status("wages").releases
    told = CliRunner().invoke(ledger_command, ["show", str(folder / "budgets.ledger")]).output
    assert asked is not None
    assert logged is not None
    assert planned[0] == asked[0] == logged[1] == entry.price
    assert len(listed) == 1
    assert entry.price in listed[0]
    assert str(entry.released)[:12] in listed[0]
    assert entry.price in told
    status = Ledger.open(folder / "budgets.ledger").status("wages")
    spent = dict(status.facts)["spent"]
    assert spent in browser.one("#spend").text
    assert spent in told
    assert status.spent_mu == entry.mu
    scored = load_model(folder / "gratis-studio" / "scored" / "model.gratis")
    assert scored.context["held_out_score"] is not None


@pytest.mark.slow
def test_a_worthless_fit_asks(browser: Browser, started: Callable[[], Any], folder: Path) -> None:
    """Few rows: the plan says what would do, and only another button spends it all the same."""
    lines = (folder / "wages.csv").read_text(encoding="utf-8").splitlines()[:61]
    (folder / "wages.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ledger = Ledger.create(folder / "budgets.ledger", {"wages": Budget(epsilon=2.0, delta=1e-6)})
    browser.driver.get(started().address)
    browser.until(lambda: browser.one("#plan"))
    choose_table(browser)
    show_plan(browser, "few")
    said = browser.until(lambda: browser.one("#worthless").text)
    assert "60 rows of 3 columns at epsilon 1 are predicted to lose most of what there is to learn" in said
    assert re.search(r"about \d+ rows", said)
    browser.click("#spend-button")
    assert said in browser.until(lambda: browser.one("dialog[open]").text)
    browser.button("Not now")
    assert ledger.status("wages").reservations == 0
    browser.click("#spend-button")
    browser.button("Spend it all the same")
    browser.until(lambda: browser.one("#run-card").get_attribute("data-state") == "done")
    assert ledger.status("wages").reservations == 1


@pytest.mark.slow
def test_it_fits_a_telephone_and_a_keyboard(browser: Browser, started: Callable[[], Any]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    browser.driver.get(started().address)
    browser.until(lambda: browser.one("#plan svg"))
    for name in ("plan", "data", "spend", "look"):
        browser.step(name)
        if name == "data":
            choose_table(browser)
        beyond = browser.driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
        assert beyond <= 0, f"{name} is wider than 390 px"
    browser.step("plan")
    rows = browser.driver.find_element("css selector", "#plan input[type=range]")
    browser.driver.execute_script("arguments[0].focus()", rows)
    before = browser.until(lambda: browser.one("#plan pre").text)
    ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    after = browser.until(lambda: (text := browser.one("#plan pre").text) != before and text)
    assert "--n" in after
    unnamed = browser.driver.execute_script(
        "return [...document.querySelectorAll('input, select')].filter((f) => !f.labels.length && !f.ariaLabel).length"
    )
    assert unnamed == 0
