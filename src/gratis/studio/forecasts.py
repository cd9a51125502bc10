"""Predictions for the page: what is known is answered at once, the rest is planned behind it, the newest first.

All of it comes from public sizes and a budget, so that it may be kept for as long as the studio runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring

__all__ = ["EPSILONS", "Asked", "Forecasts"]

EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
_FEW_EPSILONS = (0.3, 1.0, 3.0, 10.0)  # where a plan takes a second
_SLOW = "random-features"
_MOST_KEPT, _MOST_WAITING = 20_000, 400
_FIRST = 0.15  # seconds that a request waits for plans before it answers with what is there
NOW, CURVE, SEARCH, AHEAD = range(4)  # what is planned first


@dataclass(frozen=True, slots=True)
class Asked:
    """One model, sizes and a budget: what a plan depends on. `rough`: the cost alone, in closed form."""

    model: str
    rows: int
    columns: int
    classes: int | None
    epsilon: float
    delta: float
    neighbouring: str
    rough: bool = False

    def checked(self) -> Asked:
        """Refuse at once what no planner would take."""
        Facts(rows=self.rows, columns=self.columns, classes=self.classes)
        Budget(epsilon=self.epsilon, delta=self.delta, neighbouring=Neighbouring.parse(self.neighbouring))
        if self.rows > 10**9 or self.columns > 10**5 or (self.classes or 0) > 1000 or not 1e-3 <= self.epsilon <= 100:
            raise GratisError(
                "the page plans up to 10⁹ rows, 10⁵ columns, 1000 classes and ε from 0.001 to 100; the command line "
                "takes more"
            )
        return self


class _Lane:
    """One planning process and the requests that wait for it."""

    def __init__(self, done: threading.Condition, kept: dict[Asked, dict[str, Any]]) -> None:
        self._done, self._kept = done, kept
        self._waiting: dict[Asked, tuple[int, int]] = {}
        self._process: subprocess.Popen[str] | None = None
        self._ticks = count()
        self._closed = threading.Event()
        threading.Thread(target=self._work, daemon=True, name="gratis-studio-planner").start()

    def ask(self, asked: Asked, urgency: int) -> None:
        """Plan it some time; of equal urgency the newest first. Called under the condition's lock."""
        self._waiting[asked] = min(self._waiting.get(asked, (urgency, 0)), (urgency, -next(self._ticks)))
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[max(self._waiting, key=self._waiting.__getitem__)]
        self._done.notify_all()

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def _work(self) -> None:
        while not self._closed.is_set():
            with self._done:
                while not self._waiting:
                    self._done.wait()
                    if self._closed.is_set():
                        return
                asked = min(self._waiting, key=self._waiting.__getitem__)
            try:
                found = self._planned(asked)
            except (OSError, ValueError):
                if self._closed.is_set():
                    return
                self._process, found = None, {"error": "the planner stopped; the next request starts it anew"}
            with self._done:
                self._waiting.pop(asked, None)
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[asked] = found
                self._done.notify_all()

    def _planned(self, asked: Asked) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gratis.studio.planner"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, encoding="utf-8",
            )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(asked)) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())  # an end is no JSON
        return found


class Forecasts:
    """Plans by public facts, kept; three processes make them, so that closed forms never wait for simulations."""

    def __init__(self) -> None:
        self._done = threading.Condition()
        self._kept: dict[Asked, dict[str, Any]] = {}
        self._lanes = {name: _Lane(self._done, self._kept) for name in ("linear", _SLOW, "closed forms")}

    def close(self) -> None:
        """End the planning processes."""
        for lane in self._lanes.values():
            lane.close()
        with self._done:
            self._done.notify_all()

    def warm(self, asked: Asked) -> None:
        """Start the planners on what the page will show first."""
        self.picture(asked, patience=0.0)

    def one(self, asked: Asked, *, patience: float = 60.0) -> dict[str, Any] | None:
        """Return one plan's cost, or None where it takes longer than that."""
        until = time.monotonic() + patience
        with self._done:
            if asked not in self._kept:
                self._lane(asked).ask(asked, SEARCH)
            while asked not in self._kept:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._done.wait(left)
            return self._kept[asked]

    def picture(self, asked: Asked, *, patience: float = _FIRST) -> dict[str, Any]:
        """Cost against ε for every model of the task, as far as it is known; the rest is being planned."""
        from gratis.estimators.model_choice import MODELS

        models = MODELS["regression" if asked.classes is None else "classification"]
        wanted = {name: self._wanted(asked, name) for name in models if name != "mlp"}
        until = time.monotonic() + patience
        with self._done:
            for points in wanted.values():
                for place, point in enumerate(points):
                    if point not in self._kept:
                        for one in {point, _roughly(point)} - self._kept.keys():
                            self._lane(one).ask(one, NOW if place == 0 else CURVE)
            while not all(self._known(points[0]) for points in wanted.values()):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._done.wait(left)
            found = {name: [(p, self._known(p)) for p in points] for name, points in wanted.items()}
            if all(
                answer is not None and not answer.get("approximate")
                for points in found.values()
                for _, answer in points
            ):
                for near in self._near(asked, tuple(wanted)):
                    if near not in self._kept:
                        self._lane(near).ask(near, AHEAD)
        return {
            "models": {name: _told(points) for name, points in found.items()}
            | ({"mlp": {"chosen": None, "points": [], "pending": 0, "unit": None}} if "mlp" in models else {})
        }

    def _known(self, asked: Asked) -> dict[str, Any] | None:
        """The plan's figure, else the rough one, which says that it is, else None."""
        return self._kept.get(asked) or self._kept.get(_roughly(asked))

    def _lane(self, asked: Asked) -> _Lane:
        simulated = asked.classes is None and not asked.rough
        return self._lanes.get(asked.model if simulated else "", self._lanes["closed forms"])

    def _wanted(self, asked: Asked, model: str) -> list[Asked]:
        """The chosen ε first, then the others from near to far."""
        grid = _FEW_EPSILONS if model == _SLOW else EPSILONS
        others = sorted((e for e in grid if e != asked.epsilon), key=lambda e: abs(e / asked.epsilon - 1))
        return [replace(asked, model=model, epsilon=epsilon) for epsilon in (asked.epsilon, *others)]

    def _near(self, asked: Asked, models: tuple[str, ...]) -> list[Asked]:
        """One step of each slider away."""
        moved = [replace(asked, rows=rows) for rows in _beside(asked.rows) if rows >= 2]
        moved += [replace(asked, columns=columns) for columns in _beside(asked.columns)]
        return [replace(near, model=model) for near in moved for model in models]


def _beside(value: int) -> list[int]:
    """The next of 1, 2, 5, 10, … on either side, where the sliders rest."""
    ladder = [step * 10**power for power in range(10) for step in (1, 2, 5)]
    below, above = [rung for rung in ladder if rung < value], [rung for rung in ladder if rung > value]
    return [*above[:1], *below[-1:]]


def _roughly(asked: Asked) -> Asked:
    """What stands in for a plan that is simulated for longer than a user waits; the plan itself where none is."""
    return replace(asked, rough=True) if asked.model == _SLOW and asked.classes is None else asked


def _told(points: list[tuple[Asked, dict[str, Any] | None]]) -> dict[str, Any]:
    known = [(asked.epsilon, answer) for asked, answer in points if answer is not None]
    drawn = sorted(
        (
            {"epsilon": e, **answer["cost"], "approximate": bool(answer.get("approximate"))}
            for e, answer in known
            if answer.get("cost")
        ),
        key=lambda p: p["epsilon"],
    )
    chosen = points[0][1]
    return {
        "chosen": chosen,
        "points": drawn,
        "pending": sum(answer is None or bool(answer.get("approximate")) for _, answer in points),
        "unit": drawn[0]["unit"] if drawn else None,
    }
