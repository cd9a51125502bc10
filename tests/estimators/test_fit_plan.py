"""The plan that is shown is the plan that runs: also from a file, also in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gratis import (
    Budget,
    Descent,
    DPLinearRegression,
    DPRandomFeaturesRegressor,
    Ledger,
    load_model,
    plan,
    read_plan,
    save_model,
)
from gratis.cli.program import run
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError

BUDGET = Budget(epsilon=2.0, delta=1e-3)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
TARGETS = {None: X[:, 0] + 0.1 * RNG.standard_normal(60), 2: (X[:, 0] > 0).astype(int)}
CASES = [
    ("linear", None, {}),
    ("linear", None, {"algorithm": "one-pass", "schedule": "poly:0.5"}),
    ("linear", None, {"preprocessing": "none", "descent": Descent(steps=8, clip_norm=1.0, learning_rate=0.5)}),
    ("linear", None, {"algorithm": "one-pass", "descent": Descent(clip_norm=1.0, steps=2, learning_rate=(0.1, 0.05))}),
    ("logistic", 2, {}),
    ("logistic", 2, {"algorithm": "one-pass"}),
    ("random-features", None, {"n_features": 100}),
    ("random-features", None, {"n_features": 100, "descent": Descent(steps=20, average=True)}),
    ("random-features", None, {"n_features": 100, "preprocessing": "none", "descent": Descent(noise="paper")}),
    ("random-features", 2, {"n_features": 100}),
    ("random-features", 2, {"n_features": 40, "descent": Descent(steps=10, clip_norm=0.5, engine="primal")}),
    ("additive", None, {}),
    ("additive", 2, {"pairs": False}),
    ("mlp", 2, {"width": 5, "steps": 3}),
    ("mlp", 2, {"width": 5, "steps": 3, "descent": Descent(clip_norm=0.5)}),
]


@pytest.mark.parametrize(("model", "classes", "choices"), CASES)
def test_what_is_planned_is_certified(model: str, classes: int | None, choices: dict, tmp_path: Path) -> None:
    made = plan(model, rows=60, columns=3, classes=classes, budget=BUDGET, **choices)
    made.write(tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    assert again == made
    fitted = again.run(X, TARGETS[classes], **({} if classes is None else {"classes": [0, 1]}))
    assert fitted.certificate_.event == made.event == fitted.plan_.event
    assert fitted.certificate_.guarantee["epsilon"] <= 2.0


COMMANDS = {
    "linear": (None, ["linear"]),
    "one pass": (None, ["linear", "--algorithm", "one-pass"]),
    "intervals": (None, ["linear", "--inference"]),
    "additive": (None, ["additive"]),
    "features": (None, ["random-features", "--n-features", "100"]),
    "logistic": (2, ["logistic", "--classes", "2"]),
    "logistic one pass": (2, ["logistic", "--classes", "2", "--algorithm", "one-pass"]),
    "logistic intervals": (2, ["logistic", "--classes", "2", "--inference"]),
    "additive classes": (2, ["additive", "--classes", "2"]),
    "features of classes": (2, ["random-features", "--classes", "2", "--n-features", "100"]),
    "network": (2, ["mlp", "--classes", "2", "--steps", "3"]),
}


@pytest.fixture(scope="module")
def plans_of_another_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    sizes = ["--n", "60", "--d", "3", "--epsilon", "2", "--delta", "1e-3"]
    calls = [
        ["plan", *words, *sizes, "--output", str(folder / f"{name}.json")] for name, (_, words) in COMMANDS.items()
    ]
    code = f"from gratis.cli.program import run; raise SystemExit(max(run(call) for call in {calls!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.mark.slow(but=["features of classes"])
@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_plan_of_another_process_is_what_runs(name: str, plans_of_another_process: Path, tmp_path: Path) -> None:
    classes, words = COMMANDS[name]
    read = read_plan(plans_of_another_process / f"{name}.json")
    if words == ["linear"]:
        assert read == plan("linear", rows=60, columns=3, budget=BUDGET, preprocessing="private")
    fitted = read.run(X, TARGETS[classes], **({} if classes is None else {"classes": [0, 1]}))
    assert fitted.certificate_.event == read.event
    table, output = tmp_path / "t.csv", tmp_path / "out"
    columns = np.column_stack([X, TARGETS[classes]])
    np.savetxt(
        table,
        columns,
        delimiter=",",
        header="a,b,c,y",
        comments="",
        fmt=["%.9g"] * 3 + ["%.9g" if classes is None else "%d"],
    )
    task = ["--task", "regression"] if classes is None else ["--task", "classification", "--classes", "0,1"]
    given = ["--plan", str(plans_of_another_process / f"{name}.json"), "--output", str(output)]
    assert run(["fit", str(table), "--target", "y", *task, *given, "--no-audit", "--no-report", "--yes"]) == 0
    assert Certificate.read(output / "certificate.json").event == read.event


def test_another_plan_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    made = plan("linear", rows=60, columns=3, budget=BUDGET)
    with pytest.raises(GratisError, match="other rows"):
        made.run(X[:50], TARGETS[None][:50])
    data = made.to_json()
    changes: list[dict] = [
        {"facts": data["facts"] | {"rows": 61}},
        {"budget": data["budget"] | {"epsilon": 3.0}},
        {"format": "x"},
        {"choices": {"steps": 3}},
        {"choices": {"noise_seed": 3}},
        {"model": "forest"},
        {"choices": {"on_invalid": "zero"}},
        {"settings": data["settings"] | {"steps": 65}},
        {"facts": []},
    ]
    for change in changes:
        (tmp_path / "plan.json").write_text(json.dumps(data | change))
        with pytest.raises(GratisError):
            read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 0},
        {"clip_norm": -1.0},
        {"learning_rate": [0.1, 0.2]},
        {"noise": "none"},
        {"engine": "gpu"},
        {"average": 3},
    ],
)
def test_bad_settings(settings: dict) -> None:
    with pytest.raises(GratisError):
        Descent(**settings)


@pytest.mark.parametrize(
    ("model", "classes", "descent"),
    [
        ("linear", None, Descent(engine="dual")),
        ("linear", None, Descent(clip_norm=1.0)),
        ("mlp", 2, Descent(engine="dual")),
        ("random-features", None, Descent(noise="paper")),
        ("random-features", 2, Descent(noise="paper")),
    ],
)
def test_settings_that_a_model_does_not_have(model: str, classes: int | None, descent: Descent) -> None:
    with pytest.raises(GratisError):
        plan(model, rows=60, columns=3, classes=classes, budget=BUDGET, descent=descent)


def test_settings_given_are_the_settings_used() -> None:
    """Without noise to speak of, two steps of Algorithm 1 are what the user asked for."""
    descent = Descent(steps=2, clip_norm=1e3, learning_rate=1e-3)
    made = plan(
        "random-features",
        rows=60,
        columns=3,
        epsilon=1e6,
        delta=0.1,
        n_features=50,
        preprocessing="none",
        descent=descent,
    )
    fitted = made.run(X, TARGETS[None])
    phi = fitted.feature_map_.transform(X).astype(float)
    theta = np.zeros(50)
    for _ in range(2):
        theta -= 1e-3 * 2 * phi.T @ (phi @ theta - TARGETS[None]) / 60
    assert np.allclose(fitted.coef_[:, 0], theta, rtol=0.2, atol=2e-4)


def test_the_command_line_refuses_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--n", "60", "--d", "3", "--epsilon", "2", "--delta", "1e-3"]
    for more in (["--noise", "paper"], ["--steps", "0"], ["--classes", "2"], ["--algorithm", "adam"]):
        assert run(["plan", "linear", *sizes, *more]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.strip().splitlines()) == 1


def test_a_model_with_given_settings_is_saved(tmp_path: Path) -> None:
    made = plan("linear", rows=60, columns=3, budget=BUDGET, descent=Descent(steps=8))
    fitted = made.run(X, TARGETS[None])
    save_model(tmp_path / "model.gratis", fitted)
    loaded = load_model(tmp_path / "model.gratis").estimator
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.certificate_.event == made.event


def test_an_engine_that_cannot_run_is_refused_before_the_ledger_is_asked(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", {"d": Budget(epsilon=8.0, delta=1e-2)})
    descent = Descent(engine="dual", steps=5, clip_norm=1.0, learning_rate=1e9)
    model = DPRandomFeaturesRegressor(
        epsilon=2.0, delta=1e-3, n_features=50, descent=descent, preprocessing="none", ledger=str(tmp_path / "l"),
        dataset="d",
    )  # fmt: skip
    with pytest.raises(GratisError, match="dual engine cannot run"):
        model.fit(X, TARGETS[None])
    assert ledger.status("d").reservations == 0


def test_one_pass_as_written() -> None:
    """S2's Algorithm 1 with rates and clip norm of the user: θ ← θ − η·clip(g), a record a step, and its event."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((400, 3))
    target = rows @ [1.0, -1.0, 0.5] + 0.1 * rng.standard_normal(400)
    rates = (0.05, 0.02)
    model = DPLinearRegression(
        epsilon=1e6, delta=1e-3, algorithm="one-pass", preprocessing="none", noise_seed=0, insecure_reproducible=True,
        descent=Descent(clip_norm=0.7, steps=2, learning_rate=rates),
    ).fit(rows, target)  # fmt: skip
    event = model.certificate_.event.leaves()[0]
    assert event.batch_size == 1
    assert event.step_sizes.array().tolist() == pytest.approx([0.05] * 200 + [0.02] * 200)
    assert event.clip_norms.array().tolist() == pytest.approx([0.7] * 400)
    theta = np.zeros(4)
    for step, (row, answer) in enumerate(zip(np.column_stack([rows, np.ones(400)]), target, strict=True)):
        gradient = (row @ theta - answer) * row
        theta -= rates[step // 200] * gradient * min(1.0, 0.7 / np.linalg.norm(gradient))
    np.testing.assert_allclose([*model.coef_, model.intercept_], theta, atol=2e-3)  # the noise at ε = 10⁶
    with pytest.raises(GratisError, match="must not rise"):
        DPLinearRegression(
            1.0, 1e-5, algorithm="one-pass", descent=Descent(clip_norm=1.0, steps=2, learning_rate=(1, 2))
        ).plan(9, 1)
    with pytest.raises(GratisError, match="together"):
        DPLinearRegression(1.0, 1e-5, algorithm="one-pass", descent=Descent(clip_norm=1.0)).plan(9, 1)
