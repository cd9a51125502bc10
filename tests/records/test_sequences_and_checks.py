"""Runs are sequences; checks refuse what they should and show public values only."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gratis.records.checks import check_count, check_delta, check_finite, check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.predictions import Prediction
from gratis.records.record import plain
from gratis.records.sequences import Runs


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=50))
def test_runs_are_the_sequence_they_were_made_from(values: list[float]) -> None:
    runs = Runs.of(values)
    assert runs.array().tolist() == values
    assert len(runs) == len(values)
    assert Runs.from_json(json.loads(json.dumps(runs.to_json()))) == runs
    assert Runs(tuple(values), (1,) * len(values)) == runs
    assert runs.ends()[-1] == len(values)


@pytest.mark.parametrize(
    "data", [[], [[1.0]], [[1.0, 0]], [[-1.0, 2]], [["x", 2]], [[float("nan"), 1]], 3, [[1.0, 1.5]]]
)
def test_malformed_runs(data: object) -> None:
    with pytest.raises(GratisError):
        Runs.from_json(data)


def test_checks() -> None:
    assert check_count("n", 3.0) == 3
    assert check_positive("x", np.float64(2.0)) == 2.0
    assert check_positive("x", float("inf"), allow_infinite=True) == float("inf")
    for bad in (0, -1, float("nan"), float("inf"), "1", None, True):
        with pytest.raises(GratisError):
            check_positive("x", bad)
    for bad in (2.5, float("inf"), "3", 0):
        with pytest.raises(GratisError):
            check_count("n", bad)
    with pytest.raises(GratisError):
        check_finite("x", 10**400)
    with pytest.raises(GratisError):
        check_non_negative("x", -0.1)
    assert check_delta(0.0, allow_zero=True) == 0.0
    for bad in (0.0, 1.0, float("nan")):
        with pytest.raises(GratisError):
            check_delta(bad)


def test_plain_is_strict_json() -> None:
    data = {"a": np.float64(1.5), "b": float("inf"), "c": (np.int64(1), np.array([2.0])), 3: -np.inf}
    assert json.dumps(plain(data), allow_nan=False) == '{"a": 1.5, "b": "inf", "c": [1, [2.0]], "3": "-inf"}'
    with pytest.raises(GratisError):
        plain({"x": float("nan")})


def test_prediction_lies_in_its_range() -> None:
    prediction = Prediction(quantity="excess_risk", value=0.2, low=0.1, high=0.4, source="test")
    assert prediction.excess_risk == 0.2
    assert prediction.range == (0.1, 0.4)
    with pytest.raises(GratisError):
        Prediction(quantity="excess_risk", value=0.5, low=0.1, high=0.4, source="test")
    with pytest.raises(AttributeError):
        _ = Prediction(quantity="accuracy", value=0.2, low=0.1, high=0.4, source="test").excess_risk
