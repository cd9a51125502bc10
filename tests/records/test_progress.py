"""Progress: shares of public counts, shown in time, and never in the way of a training."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from gratis import DPLinearRegression, DPLogisticRegression
from gratis.records.progress import ProgressLine, counted, following, tracked

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 3))
Y = X @ [1.0, 2.0, 0.0] + RNG.normal(size=500)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shares(model: Any, *data: Any) -> list[tuple[str, float]]:
    seen: list[tuple[str, float]] = []
    with following(lambda name, share: seen.append((name, share))):
        model.fit(*data)
    return [one for one in seen if one[0] == "training"]


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_every_release_of_a_training_counts_and_the_last_completes_it(kind: str) -> None:
    linear = kind == "linear"
    model = DPLinearRegression(**BUDGET) if linear else DPLogisticRegression(**BUDGET, classes=[0, 1])
    seen = shares(model, X, Y if linear else (Y > 0).astype(int))
    values = [share for _, share in seen]
    assert values == sorted(values)
    assert values[0] == 0
    assert values[-1] == pytest.approx(1.0)
    assert len(set(values)) > 50


def test_nothing_of_it_depends_on_the_rows() -> None:
    """Hostile rows give the same sequence of shares, one for one."""
    hostile, target = X.copy(), Y.copy()
    hostile[0], target[1], hostile[2, 1] = 1e300, np.nan, np.inf
    model = DPLinearRegression(**BUDGET, on_invalid="impute")
    assert shares(model, X, Y) == shares(model, hostile, target)


def test_a_listener_that_fails_stops_no_training() -> None:
    def broken(name: str, share: float) -> None:
        raise BrokenPipeError

    with following(broken):
        assert DPLinearRegression(**BUDGET).fit(X, Y).certificate_.guarantee["within_budget"]


def test_without_a_terminal_a_line_every_so_often() -> None:
    stream, clock = io.StringIO(), Clock()
    with ProgressLine(stream=stream, clock=clock) as line, following(line):
        for _ in tracked(range(100), "audit"):
            clock.now += 0.5
    lines = stream.getvalue().splitlines()
    assert lines[0] == "audit: 6 % after 3 s, about 47 s left"
    assert len(lines) == 5  # after 3, 13, 23, 33 and 43 of 50 seconds


def test_what_is_quick_says_nothing() -> None:
    stream, clock = io.StringIO(), Clock()
    with ProgressLine(stream=stream, clock=clock) as line, following(line):
        for _ in tracked(range(5), "audit"):
            clock.now += 0.5
    assert stream.getvalue() == ""


def test_on_a_terminal_one_line_is_drawn_anew_and_cleared() -> None:
    stream, clock = Terminal(), Clock()
    with ProgressLine("training", stream=stream, clock=clock) as line, following(line), counted("x", 4) as advance:
        for _ in range(4):
            clock.now += 30.0
            advance(1)
    text = stream.getvalue()
    assert "\n" not in text
    assert "50 % after 1 min 0 s, about 1 min 0 s left" in text
    assert text.endswith("\r\x1b[2K")


def test_tasks_inside_one_another_refine_the_outermost() -> None:
    seen: list[float] = []
    with following(lambda name, share: seen.append(round(share, 3))), counted("outer", 2) as advance:
        for _ in range(2):
            for _ in tracked(range(2), "inner"):
                pass
            advance(1)
    assert seen == sorted(seen)
    assert set(seen) == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_verbose_writes_to_the_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(np.arange(0.0, 1e6, 1.0))
    monkeypatch.setattr(ProgressLine.__init__, "__kwdefaults__", ProgressLine.__init__.__kwdefaults__ | {
        "clock": lambda: float(next(times))
    })  # fmt: skip
    DPLinearRegression(**BUDGET, verbose=True).fit(X, Y)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "training: " in shown.err
    assert "left" in shown.err
    DPLinearRegression(**BUDGET).fit(X, Y)
    assert capsys.readouterr().err == ""
