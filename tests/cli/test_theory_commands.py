"""Theory that had no command: bounds beside a one-pass plan, the spectrum, Lemma 3.2, and sums of certificates."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gratis.accounting import account, epsilon_upper_bound
from gratis.cli.program import run
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.events import Composition
from gratis.records.guarantees import ApproximateDPGuarantee, GDPGuarantee

FILES = Path(__file__).parent.parent / "estimators" / "files_0_1_0"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_one_pass_plan_stands_between_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    known = ("--signal-variance", "0.5", "--label-noise-variance", "0.5", "--spectrum", "power:0.3")
    words = ("plan", "one-pass", "--n", "2000", "--d", "100", "--mu", "0.5", "--algorithm", "one-pass", *known)
    for schedule in ("poly:0.5", "harmonic", "free"):
        found = answer(capsys, *words, "--schedule", schedule)
        limits = found["limits"]
        assert limits["low"] < found["predicted_excess_risk"] < limits["high"]
        assert 0 < limits["bayes_risk"] < found["predicted_excess_risk"]
        assert limits["minimax_rate"] == pytest.approx(0.05 + 0.1**2)
        assert (limits["schedule_rate"] is None) == (schedule == "free")


def test_a_plan_without_a_pass_has_the_limits_of_all_algorithms_alone(capsys: pytest.CaptureFixture[str]) -> None:
    known = ("--signal-variance", "0.5", "--label-noise-variance", "0.5", "--spectrum", "isotropic")
    words = ("plan", "one-pass", "--n", "2000", "--d", "10", "--mu", "0.5", "--algorithm", "full-batch", *known)
    limits = answer(capsys, *words)["limits"]
    assert limits["low"] is limits["high"] is limits["schedule_rate"] is None
    assert len(limits["words"]) == 2
    # Σ = I and many rows: near the risk of least squares, ½ζ²·d/n, and never above it.
    assert limits["bayes_risk"] == pytest.approx(0.25 * 10 / 2000, rel=0.02)


ONE_PASS = ("plan", "one-pass", "--n", "4000", "--d", "40", "--mu", "0.5", "--spectrum", "isotropic")


def test_one_pass_of_a_classifier_is_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = (*ONE_PASS, "--task", "classification", "--signal-variance", "4", "--schedule", "poly:0")
    curve = tmp_path / "curve.csv"
    found = answer(capsys, *words, "--curve", str(curve))
    assert found["schedule"] == "poly:0"
    assert 0.5 < found["predicted_accuracy"] < found["best_accuracy"] == pytest.approx(0.778, abs=1e-3)
    assert found["guarantee"]["mu"] == pytest.approx(0.5, rel=1e-3)
    losses = [float(line.split(",")[1]) for line in curve.read_text(encoding="utf-8").splitlines()[1:]]
    assert losses[0] == pytest.approx(math.log(2) - 0.4620, abs=1e-3)
    assert losses[-1] == pytest.approx(found["predicted_excess_log_loss"], rel=1e-6)
    own = answer(capsys, *words, "--rate", "3", "--clip", "0.5")
    assert own["schedule"] == "given"
    assert own["predicted_excess_log_loss"] > found["predicted_excess_log_loss"]


def test_own_rates_and_clips_have_a_predicted_curve(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = ("--signal-variance", "1", "--label-noise-variance", "0.25")
    curve = tmp_path / "curve.csv"
    own = ("--schedule", "harmonic", "--rate", "8", "--clip", "0.4", "--offset", "0.1", "--curve", str(curve))
    found = answer(capsys, *ONE_PASS, *known, *own)
    assert found["settings"]["curve"]["numerator"] == pytest.approx(0.8)
    assert found["guarantee"]["mu"] == pytest.approx(0.5, rel=1e-3)
    risks = [float(line.split(",")[1]) for line in curve.read_text(encoding="utf-8").splitlines()[1:]]
    assert risks[0] == pytest.approx(0.5)
    assert risks[-1] == pytest.approx(found["predicted_excess_risk"], rel=1e-3)
    assert run([*ONE_PASS, *known, *own[:-2]]) == 0
    assert "Predicted excess risk of your schedule" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("--rate", "3"),
        ("--rate", "3", "--clip", "0.3"),
        ("--rate", "3", "--clip", "0.3", "--schedule", "harmonic"),
        ("--task", "ranking"),
        ("--task", "classification", "--algorithm", "full-batch"),
        ("--task", "classification", "--label-noise-variance", "0.2"),
        ("--task", "classification", "--schedule", "free-clip", "--signal-variance", "1"),
    ],
)
def test_one_pass_refuses_what_it_cannot_mean(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ONE_PASS, *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.slow
def test_spectrum(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    budget = ("--n", "5000", "--epsilon", "1", "--delta", "1e-6")
    steep = answer(capsys, "plan", "spectrum", "--power", "5", "--d", "3000", *budget)
    assert steep["is_low_dimensional"]
    assert steep["effective_dimension"] < 300
    assert steep["power_law_rate"] > 0
    # Eigenvalues k^-5: G_k = (k + 1)^-2.5, and nothing outside all dimensions.
    assert steep["lipschitz_coefficients"]["10"] == pytest.approx(11**-2.5)
    assert steep["lipschitz_coefficients"]["3000"] == 0
    flat = answer(capsys, "plan", "spectrum", "--power", "0", "--d", "50", *budget)
    assert not flat["is_low_dimensional"]
    # The same moments as a matrix in another basis.
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))[0]
    values = np.arange(1.0, 21) ** -2
    np.save(tmp_path / "m.npy", basis * values @ basis.T)
    np.save(tmp_path / "v.npy", values)
    picture = ("--picture", str(tmp_path / "p.png"))
    matrix, vector = (
        answer(capsys, "plan", "spectrum", str(tmp_path / f), *budget, *picture) for f in ("m.npy", "v.npy")
    )
    assert matrix["excess_risk_bound"] == pytest.approx(vector["excess_risk_bound"])
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_lemma_3_2_stands_beside_the_linearised_bound(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "network", "--n", "1000", "--d", "10", "--classes", "2", "--width", "20", "--depth", "2")
    words += ("--kl-budget", "1")
    assert all(choice["general_kl_of_reference_run"] is None for choice in answer(capsys, *words)["choices"])
    smooth = answer(capsys, *words, "--smoothness", "0", "--jump", "0")["choices"]
    rough = answer(capsys, *words, "--smoothness", "1", "--jump", "0.1")["choices"]
    for a, b in zip(smooth, rough, strict=True):
        # Without curvature only the first term is left: twice the linearised bound, which integrates it once.
        assert a["general_kl_of_reference_run"] == pytest.approx(2 * a["kl_of_reference_run"])
        assert b["general_kl_of_reference_run"] > a["general_kl_of_reference_run"]


def test_total_of_certificates_plans_and_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    sizes = ("--n", "60", "--d", "3", "--epsilon", "2", "--delta", "1e-3", "--output", str(plan))
    answer(capsys, "plan", "linear", *sizes)
    files = [FILES / "linear.json", FILES / "linear.gratis", plan]
    found = answer(capsys, "account", "total", *map(str, files), "--delta", "1e-4", "--rows-per-person", "2")
    linear = Certificate.read(FILES / "linear.json").event
    alone = answer(capsys, "account", "total", str(plan), "--delta", "1e-3")
    both = account(Composition((linear, linear)))
    assert isinstance(both, GDPGuarantee)
    assert found["mu"] == pytest.approx(2 * math.hypot(both.mu, alone["mu"]))
    assert found["epsilon"] == pytest.approx(
        epsilon_upper_bound(GDPGuarantee(mu=found["mu"], neighbouring=both.neighbouring), delta=1e-4), rel=1e-9
    )
    assert found["kl"] == pytest.approx(found["mu"] ** 2 / 2) == found["zcdp_rho"]
    assert found["renyi"]["2"] == pytest.approx(found["mu"] ** 2)


def test_budgets_and_lists_of_events_are_accounted_too() -> None:
    event = Certificate.read(FILES / "linear.json").event
    assert account([event, event]) == account(Composition((event, event)))
    assert account(Budget(mu=0.5)) == GDPGuarantee(mu=0.5, neighbouring=Budget(mu=0.5).neighbouring)
    assert isinstance(account(Budget(epsilon=1.0, delta=1e-5)), ApproximateDPGuarantee)


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "spectrum", "--n", "10", "--epsilon", "1", "--delta", "1e-5"],
        ["plan", "spectrum", "--n", "10", "--epsilon", "1", "--delta", "1e-5", "--power", "1", "--d", "-3"],
        ["plan", "spectrum", __file__, "--n", "10", "--epsilon", "1", "--delta", "1e-5"],
        ["plan", "spectrum", "--power", "-1e9", "--d", "9", "--n", "10", "--epsilon", "1", "--delta", "1e-5"],
        ["account", "total", __file__, "--delta", "1e-5"],
        ["account", "total", str(FILES / "predictions.json"), "--delta", "1e-5"],
        ["account", "total", "nowhere.json", "--delta", "1e-5"],
        ["account", "total", str(FILES / "linear.json"), "--delta", "1e-5", "--rows-per-person", "0"],
    ],
)
def test_refusals_are_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
