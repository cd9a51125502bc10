"""Certificates: everything is recomputed, and every kind of tampering is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gratis.accounting import calibrate_mu, calibrate_noise_std, issue_certificate, verify_certificate
from gratis.mechanisms.noise import NoiseSource
from gratis.specs.budget import Budget
from gratis.specs.certificates import Certificate, Selection
from gratis.specs.errors import CertificateError
from gratis.specs.events import Composition, GaussianRelease, OnePassIteration
from gratis.specs.sequences import Runs

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
