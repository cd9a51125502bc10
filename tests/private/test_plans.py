"""Models that try to release what was not planned (docs/proofs/sessions.md): refused before noise is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gratis.accounting import account
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.private.bounds import ball
from gratis.private.session import PrivateRows, Session, Share, plan, run
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

N, D = 40, 2
RELATION = Neighbouring.REPLACE_ONE


class Counting(NoiseSource):
    """Counts what is asked of it."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__(7, secure=False)
        self.asked = 0

    def normal(self, std: float, shape: Any) -> Any:
        self.asked += 1
        return super().normal(std, shape)


def table() -> Rows:
    rng = np.random.default_rng(0)
    return Rows.held(rng.normal(size=(N, D)), rng.normal(size=N))


def refused(model: Any, *, draws: int, match: str = "departs from its plan") -> None:
    """The plan is made and the run is refused, after so many releases as agreed with it."""
    noise = Counting()
    planned = plan(model, N, D, RELATION)
    with pytest.raises(GratisError, match=match):
        run(model, table(), RELATION, noise, planned=planned)
    assert noise.asked == draws


def centre(s: Session, share: Share, label: str = "mean", size: int = D) -> Any:
    return s.mean(lambda X, y: np.resize(X, (len(X), size)), ball(size), share, label)[0]


class Peeking:
    """A map that breaks the rule: it shows the model what it saw."""

    def __init__(self) -> None:
        self.seen = np.zeros(0)

    def __call__(self, X: Any, y: Any) -> Any:
        self.seen = X[:, 0]
        return X, y


@pytest.mark.parametrize("what", ["label", "size", "share"])
def test_a_first_release_that_depends_on_records_is_refused_and_no_noise_is_drawn(what: str) -> None:
    def model(s: Session) -> Any:
        part, peeking = s.split(1.0, a=0.5, b=0.5), Peeking()
        s.rows.mapped(peeking)
        there = bool(np.isfinite(peeking.seen).any())
        changed = {
            "label": {"label": "somebody" if there else "nobody"},
            "size": {"size": D + there},
            "share": {"share": part["b"].over(2) if there else part["a"]},
        }[what]
        return centre(s, **({"share": part["a"]} | changed))

    refused(model, draws=0)


def test_a_number_of_releases_that_depends_on_records_is_refused_before_the_one_too_many() -> None:
    def model(s: Session) -> Any:
        part, peeking = s.split(1.0, a=1.0)["a"].over(9), Peeking()
        s.rows.mapped(peeking)
        return [centre(s, part) for _ in range(2 + int((peeking.seen > 0).any()))]

    refused(model, draws=2)


def test_fewer_releases_than_planned_publish_nothing() -> None:
    def model(s: Session) -> Any:
        part, peeking = s.split(1.0, a=1.0)["a"].over(9), Peeking()
        s.rows.mapped(peeking)
        return [centre(s, part) for _ in range(3 - int((peeking.seen > 0).any()))]

    refused(model, draws=2)


@pytest.mark.parametrize("what", ["number", "label", "size", "share"])
def test_releases_that_depend_on_released_values_cannot_be_planned(what: str) -> None:
    """Before a table is opened, hence before anything is reserved."""

    def model(s: Session) -> Any:
        part = s.split(1.0, a=0.5, b=0.5)
        large = bool(centre(s, part["a"].over(2)).max() > 1.0)
        if what == "number":
            return [centre(s, part["b"].over(2)) for _ in range(1 + large)]
        changed = {
            "label": {"label": "large" if large else "small"},
            "size": {"size": D + large},
            "share": {"share": part["b"].over(1 + large)},
        }[what]
        return centre(s, **({"share": part["b"]} | changed))

    with pytest.raises(GratisError, match="depend on what was released before"):
        plan(model, N, D, RELATION)


def test_a_dependence_that_no_imagined_answer_shows_is_refused_before_its_noise_is_drawn() -> None:
    def model(s: Session) -> Any:
        part = s.split(1.0, a=0.5, b=0.5)
        first = centre(s, part["a"])
        rare = not bool(np.isin(np.round(first / np.abs(first).max().clip(1e-300), 6), [0.0, 1.0, -1.0]).all())
        rare &= bool(abs(first[0] / first[1]) not in (0.3 / 1.1, 1.0))  # what a plan imagines
        return centre(s, part["b"], label="rare" if rare else "usual")

    refused(model, draws=1)


def test_a_model_that_catches_the_refusal_gets_nothing_more() -> None:
    def model(s: Session) -> Any:
        part, peeking = s.split(1.0, a=1.0)["a"].over(9), Peeking()
        s.rows.mapped(peeking)
        found = [centre(s, part)]
        try:
            centre(s, part, label="somebody" if (peeking.seen > 0).any() else "nobody")
        except GratisError:
            found.append(centre(s, part))
        return found

    refused(model, draws=1)


def test_a_share_pays_once() -> None:
    def twice(s: Session) -> Any:
        part = s.split(1.0, a=0.5, b=0.5)
        return centre(s, part["a"]), centre(s, part["a"])

    def forged(s: Session) -> Any:
        s.split(1.0, a=1.0)
        return centre(s, Share(5.0, "a"))

    def foreign(s: Session) -> Any:
        return centre(s, Share(1.0, "a"))

    def scales(s: Session) -> Any:
        part = s.split(1.0, a=1.0)["a"]
        return s.standardise(s.rows, part, "features"), centre(s, part.over(10**6))

    for model in (twice, forged, foreign, scales):
        with pytest.raises(GratisError, match="the share of 'a' does not pay for"):
            plan(model, N, D, RELATION)


def test_the_budget_is_split_once() -> None:
    def model(s: Session) -> Any:
        first = centre(s, s.split(1.0, a=1.0)["a"])
        return centre(s, s.split(float(np.abs(first).max()) + 1, b=1.0)["b"])

    with pytest.raises(GratisError, match="split once, before its first release"):
        plan(model, N, D, RELATION)


def test_rows_show_a_model_nothing() -> None:
    shown = {name for name in dir(PrivateRows(table())) if not name.startswith("_")}
    assert shown == {"mapped", "n_features", "targets"}


def test_an_honest_model_runs_as_planned_and_spends_what_was_split() -> None:
    """Negative control of all the above: clip norms and maps may depend on what was released."""

    def model(s: Session) -> Any:
        part = s.split(0.8, first=0.3, rest=0.7)
        first = centre(s, part["first"])
        rows = s.rows.mapped(lambda X, y: (X - first, y))
        step = part["rest"].over(3)
        clip = float(np.linalg.norm(first)) + 0.1
        return [s.gradient(rows, lambda Z, t: t[:, None], step, "g", clip_norm=clip)[0] for _ in range(3)], s.released

    noise, planned = Counting(), plan(model, N, D, RELATION)
    assert run(model, table(), RELATION, noise, planned=planned)[1] == planned
    assert noise.asked == 4
    assert account(planned.event).mu == pytest.approx(0.8, rel=1e-9)
    assert account(planned.event).mu <= 0.8
