"""Certificates: everything is recomputed, and every kind of tampering is named."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gratis.accounting import calibrate_mu, calibrate_noise_std, issue_certificate, verify_certificate
from gratis.estimators.evaluation import DISJOINT
from gratis.mechanisms.noise import NoiseSource
from gratis.records.assumptions import ASSUMPTIONS, assumption_id, assumption_text
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate, Selection
from gratis.records.errors import CertificateError
from gratis.records.events import (
    Composition,
    Event,
    FullBatchDescent,
    GaussianRelease,
    OnePassIteration,
    PoissonSubsampledGaussian,
)
from gratis.records.sequences import Runs

BUDGET = Budget(epsilon=1.0, delta=1e-5)


def make(noise_factor: float = 1.0) -> Certificate:
    mu = calibrate_mu(BUDGET)
    release = GaussianRelease(
        sensitivity=1.0,
        noise_std=noise_factor * calibrate_noise_std(mu=mu, sensitivity=1.0, count=2),
        neighbouring=BUDGET.neighbouring,
    )
    one_pass = OnePassIteration(
        step_sizes=Runs.constant(0.1, 10),
        clip_norms=Runs.constant(1.0, 10),
        noise_stds=Runs.of([0.0] * 9 + [noise_factor * calibrate_noise_std(mu=mu, sensitivity=0.2, count=2)]),
        neighbouring=BUDGET.neighbouring,
    )
    return issue_certificate(
        event=Composition((release, one_pass)),
        budget=BUDGET,
        selection=Selection.NONE,
        randomness=NoiseSource.secure().describe(),
        plan={"algorithm": "test"},
    )


def test_round_trip_and_verification(tmp_path: Path) -> None:
    certificate = make()
    certificate.write(tmp_path / "c.json")
    again = Certificate.read(tmp_path / "c.json")
    assert again.to_json() == certificate.to_json()
    assert verify_certificate(again) == []
    assert again.guarantee["epsilon"] <= 1.0
    assert "one-pass-once" in again.assumptions


def tampered(change: dict[str, Any]) -> Certificate:
    data = json.loads(json.dumps(make().to_json()))
    for path, value in change.items():
        *parents, last = path.split("/")
        node = data
        for key in parents:
            node = node[int(key)] if isinstance(node, list) else node[key]
        node[int(last) if isinstance(node, list) else last] = value
    return Certificate.from_json(data)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"guarantee/epsilon": 0.5}, "epsilon"),
        ({"guarantee/mu": 0.1}, "mu"),
        ({"guarantee/curve/3/delta": 1e-9}, "curve"),
        ({"event/events/0/noise_std": 0.1}, "budget"),
        ({"event/events/1/noise_stds": [[1e-9, 10]]}, "budget"),
        ({"assumptions": []}, "assumption"),
        ({"unit": "one person"}, "unit"),
        ({"randomness": {}}, "randomness"),
        ({"budget": {"epsilon": 0.5, "delta": 1e-5, "neighbouring": "replace-one"}}, "budget"),
        ({"ledger_entry": {"event": {"kind": "composition", "events": []}}}, "ledger"),
        ({"guarantee/within_budget": 1}, "within_budget"),
        ({"guarantee/within_budget": False}, "within_budget"),
        ({"guarantee/epsilon": "small"}, "epsilon"),
        ({"guarantee/epsilon": True}, "epsilon"),
        ({"guarantee/delta": 1e-6}, "delta"),
        ({"guarantee/kind": "pld"}, "kind"),
        ({"guarantee/curve": [{"epsilon": "x", "delta": 1.0}]}, "curve"),
        ({"guarantee/curve": [{"epsilon": 1.0, "delta": 1.0}] * 1000}, "curve"),
        ({"guarantee/more": 1}, "fields"),
        ({"guarantee": {"kind": "gdp", "within_budget": True}}, "fields"),
    ],
)
def test_tampering_is_found(change: dict[str, Any], word: str) -> None:
    problems = verify_certificate(tampered(change))
    assert problems
    assert word in " ".join(problems)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "gratis-certificate/0"},
        {"extra": 1},
        {"selection": "maybe"},
        {"event": {"kind": "magic"}},
        {"neighbouring": "zero-out"},
        {"assumptions": "none"},
        {"assumptions": [1]},
        {"released": "abc"},
        {"released": 1},
        {"event/events/1/noise_stds": [[1.0, 10**16]]},
        {"event/events/0/count": 10**16},
        {"event/events/0/count": 10**400},
    ],
)
def test_malformed_certificates_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CertificateError):
        tampered(change)


def test_an_overspent_certificate_says_so() -> None:
    assert any("more than the stated budget" in p for p in verify_certificate(make(noise_factor=0.5)))


def test_other_relation_is_refused() -> None:
    with pytest.raises(CertificateError, match="neighbouring"):
        issue_certificate(
            event=GaussianRelease(sensitivity=1.0, noise_std=1.0, neighbouring="zero-out"),  # type: ignore[arg-type]
            budget=BUDGET,
            selection=Selection.NONE,
            randomness={"secure": True},
        )


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="cannot read"):
        Certificate.read(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(CertificateError, match="not JSON"):
        Certificate.read(tmp_path / "bad.json")


def test_a_certificate_may_state_more_than_its_events_prove_but_not_less() -> None:
    stated = make().guarantee
    digits = {"guarantee/epsilon": stated["epsilon"] * (1 + 1e-12), "guarantee/mu": stated["mu"] * (1 - 1e-12)}
    assert verify_certificate(tampered(digits)) == []
    more = {"guarantee/epsilon": 2 * stated["epsilon"], "guarantee/mu": 2 * stated["mu"]}
    assert verify_certificate(tampered(more | {"guarantee/curve": [{"epsilon": 0.0, "delta": 1.0}]})) == []
    assert verify_certificate(tampered({"guarantee/epsilon": "inf"})) == []
    assert verify_certificate(tampered({"guarantee/epsilon": stated["epsilon"] * (1 - 1e-6)}))
    assert verify_certificate(tampered({"guarantee/mu": stated["mu"] * (1 - 1e-6)}))


def test_certificates_outlive_a_change_of_wording(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [assumption_text(name) for name in make().assumptions]
    old = tampered({"format": "gratis-certificate/1", "assumptions": sentences})
    assert old.assumptions == make().assumptions
    known = ASSUMPTIONS["one-pass-once"]
    reworded = replace(known, wordings=("every record is used once", *known.wordings))
    monkeypatch.setitem(ASSUMPTIONS, "one-pass-once", reworded)
    assert verify_certificate(tampered({"assumptions": sentences})) == []
    assert verify_certificate(tampered({"assumptions": [*make().assumptions, "of a later version"]})) == []
    problems = verify_certificate(tampered({"assumptions": sentences[:3]}))
    assert any("every record is used once" in problem for problem in problems)


def test_every_wording_belongs_to_one_assumption() -> None:
    wordings = [text for known in ASSUMPTIONS.values() for text in known.wordings]
    assert len(set(wordings)) == len(wordings)
    assert assumption_id("that the target has more than 20 different values is public") == "many-target-values"
    assert assumption_id(DISJOINT) == "disjoint-parts"


@pytest.mark.parametrize(
    "event",
    [
        FullBatchDescent(
            learning_rates=Runs.constant(1.0, 10**12), noise_stds=Runs.constant(1.0, 10**12), clip_norm=1.0,
            n_records=1000, neighbouring=BUDGET.neighbouring,
        ),
        OnePassIteration(
            step_sizes=Runs.constant(1.0, 10**12), clip_norms=Runs.constant(1.0, 10**12),
            noise_stds=Runs.constant(1.0, 10**12), neighbouring=BUDGET.neighbouring,
        ),
        FullBatchDescent(
            learning_rates=Runs((1e50, 1e49), (10**12, 1)), noise_stds=Runs.constant(1e-50, 10**12 + 1),
            clip_norm=1e50, n_records=1, rounding_inflation=1e50, neighbouring=BUDGET.neighbouring,
        ),
        GaussianRelease(sensitivity=1e307, noise_std=1.0, neighbouring=BUDGET.neighbouring),
        PoissonSubsampledGaussian(
            sampling_rate=0.01, noise_multiplier=1.0, steps=10**15, neighbouring=BUDGET.neighbouring
        ),
        PoissonSubsampledGaussian(
            sampling_rate=0.5, noise_multiplier=0.01, steps=10, neighbouring=BUDGET.neighbouring
        ),
        PoissonSubsampledGaussian(
            sampling_rate=1e-300, noise_multiplier=1e300, steps=10**15, neighbouring=BUDGET.neighbouring
        ),
    ],
    ids=["full batch", "one pass", "overflow", "gaussian", "poisson steps", "poisson noise", "poisson rate"],
)  # fmt: skip
def test_absurd_events_are_refused_at_once(event: Event) -> None:
    begin = time.process_time()
    problems = verify_certificate(tampered({"event": event.to_json()}))
    assert any("more than the stated budget" in problem for problem in problems)
    assert time.process_time() - begin < 30
