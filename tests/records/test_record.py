"""Records: written by their fields, read strictly, and the same again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gratis.ledger.payloads import BudgetPayload, ClaimPayload, CommitmentPayload, Fingerprint, ReservationPayload
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError
from gratis.records.events import Composition, GaussianRelease, event_from_json
from gratis.records.facts import Facts
from gratis.records.guarantees import GDPGuarantee
from gratis.records.neighbouring import Neighbouring
from gratis.records.predictions import Estimate, Prediction
from gratis.records.record import Record, read_as
from gratis.records.settings import (
    AdditiveSettings,
    Descent,
    FeatureSettings,
    FullBatchSettings,
    InferenceSettings,
    NetworkSettings,
    OnePassSettings,
    Settings,
    StagedSettings,
)

FILES = Path(__file__).parent.parent / "estimators" / "files_0_1_0"
EVENT = GaussianRelease(sensitivity=1.0, noise_std=2.0, neighbouring=Neighbouring.ZERO_OUT)
SETTINGS: list[Settings] = [
    FullBatchSettings(steps=3, clip_norm=1.0, learning_rate=0.5, noise_std=2.0, output="last iterate"),
    StagedSettings(steps=3, stages=("descent",), descent_mu=0.5, clip_and_rate="given", given=Descent(clip_norm=1.0)),
    OnePassSettings(
        rho=1.0, initial_step_size=1.0, initial_clip_norm=1.0, noise_std_total=1.0, blocks=2, curve={"label": "poly"}
    ),
    FeatureSettings(n_features=9, steps=2, clip_norm=1.0, learning_rate=(0.5, 0.25), engine="dual"),
    NetworkSettings(widths=(3, 5, 2), clip_norm=1.0, steps=2, total_rate=3.0, mean_rate=1.5, average=False),
    AdditiveSettings(cosines=3, steps=2, most_pairs=0, stages=("scales", "gradients")),
    InferenceSettings(steps=3, stages=("descent",), descent_mu=0.5, jacobian_mu=0.2, gradient_mu=0.3),
]
RECORDS: list[Record] = [
    *SETTINGS,  # type: ignore[list-item]
    Budget(mu=0.5),
    Budget(epsilon=1.0, delta=1e-5, neighbouring=Neighbouring.ZERO_OUT),
    Facts(rows=10, columns=2),
    Descent(steps=2, learning_rate=(0.1, 0.2), clip_norm=1.0, average=True),
    GDPGuarantee(mu=float("inf"), neighbouring=Neighbouring.ZERO_OUT),
    Prediction(quantity="q", value=1.0, low=0.5, high=2.0, source="s", details={"more": [1]}),
    Estimate(quantity="q", value=1.0, low=0.5, high=float("inf"), confidence=0.9, samples=3, method="m"),
    BudgetPayload(name="d", budget=Budget(mu=0.5), fingerprint=Fingerprint(sha256="0" * 64)),
    ReservationPayload(name="d", event=EVENT, purpose="training", note=""),
    CommitmentPayload(name="d", reservation="x"),
    ClaimPayload(name="d", reservation="x", run="r", released=1, claimed=2),
    EVENT,
    Composition((EVENT, Composition((EVENT,)))),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_is_written_is_read_again(record: Record) -> None:
    text = json.dumps(record.to_json(), allow_nan=False)
    again = type(record).from_json(json.loads(text))
    assert again == record
    assert json.dumps(again.to_json()) == text


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_field_too_many_too_few_or_of_another_type_is_refused(record: Record) -> None:
    data = record.to_json()
    wrong = [{key: value for key, value in data.items() if key != name} for name in data]
    wrong += [data | {name: ({"x": 1} if not isinstance(data[name], dict) else [1])} for name in data]
    if not isinstance(record, Prediction):  # what it does not know are its details
        wrong.append(data | {"unknown": 1})
    sentences = []
    for change in wrong:
        try:
            made = type(record).from_json(change)
        except GratisError as error:
            sentences.append(str(error))
        else:  # only what may be left out: a None, or a detail
            assert made != record or isinstance(record, Prediction)
            assert set(change) < set(data) or isinstance(record, Prediction)
    assert sentences
    assert all(len(sentence) < 300 and "\n" not in sentence for sentence in sentences)
    with pytest.raises(GratisError):
        type(record).from_json([data])


def test_settings_are_told_apart_by_their_kind() -> None:
    for settings in SETTINGS:
        assert read_as(Settings, settings.to_json()) == settings
    with pytest.raises(GratisError, match="known kind"):
        read_as(Settings, SETTINGS[0].to_json() | {"kind": "magic"})
    with pytest.raises(GratisError):
        read_as(Settings, SETTINGS[0].to_json() | {"kind": "network"})


@pytest.mark.parametrize("value", [True, "1", None, [1.0], float("nan"), 10**400, "nan"])
def test_a_number_is_a_number(value: object) -> None:
    with pytest.raises(GratisError):
        event_from_json(EVENT.to_json() | {"noise_std": value})


@pytest.mark.parametrize("value", [True, "1", None, 1.5, 2.0, 10**16])
def test_a_count_is_a_whole_number(value: object) -> None:
    with pytest.raises(GratisError):
        event_from_json(EVENT.to_json() | {"count": value})


def test_infinite_noise_is_no_noise_level() -> None:
    """A bound may be infinite, and then is written as a word; what a mechanism did may not."""
    with pytest.raises(GratisError, match="noise_std"):
        event_from_json(EVENT.to_json() | {"noise_std": "inf"})


def test_events_nested_without_end_are_refused() -> None:
    data = EVENT.to_json()
    for _ in range(5000):
        data = {"kind": "composition", "events": [data]}
    with pytest.raises(GratisError, match="deep"):
        event_from_json(data)


@pytest.mark.parametrize("file", [f for f in sorted(FILES.glob("*.json")) if f.stem != "predictions"], ids=str)
def test_certificates_of_the_first_version_keep_every_field(file: Path) -> None:
    old = json.loads(file.read_text(encoding="utf-8"))
    new = Certificate.read(file).to_json()
    same = set(old) - {"format", "assumptions"}
    assert {key: new[key] for key in same} == {key: old[key] for key in same}
