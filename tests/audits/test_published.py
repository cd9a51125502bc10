"""What is published, compared bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest

from gratis.audits.comparison import differences, finest_bit


@dataclass(frozen=True, slots=True)
class Record:
    weights: np.ndarray
    name: str = "a"


class Colour(Enum):
    RED = 1
    BLUE = 2


class Plain:
    def __init__(self, hidden):
        self._hidden = hidden


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 1.0),
        (1.0, np.nextafter(1.0, 2)),
        (0.0, -0.0),
        ("a", "b"),
        (Colour.RED, Colour.BLUE),
        ([1, 2], [1, 2, 3]),
        ({"a": 1}, {"b": 1}),
        (Record(np.zeros(2)), Record(np.array([0.0, 1e-300]))),
        (Record(np.zeros(2)), Record(np.zeros(2), "b")),
        (np.zeros(2), np.zeros((2, 1))),
        (np.zeros(2), np.zeros(2, dtype=np.float32)),
        (np.array([None, 1], dtype=object), np.array([None, 2], dtype=object)),
        (Plain([1.0]), Plain([2.0])),
        ({1, 2}, {1, 3}),
    ],
)
def test_every_difference_is_found(first, second):
    assert differences({"x": first}, {"x": second})
    assert not differences({"x": first}, {"x": first})


def test_not_a_number_equals_itself_and_clocks_do_not_count():
    assert not differences([float("nan"), np.array([np.nan])], [float("nan"), np.array([np.nan])])
    assert not differences({"issued": 1, "a": 2}, {"issued": 3, "a": 2})


def test_parameters_and_buffers_of_a_module_count():
    torch = pytest.importorskip("torch")
    first, second = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)
    assert not differences(first, second)
    second.running_mean += 1.0
    assert differences(first, second) == ["['running_mean']: values"]


def test_other_values_are_allowed_on_the_same_lattice_only():
    first, second = {"w": np.array([0.25, 1.0])}, {"w": np.array([0.75, 5.0])}
    assert differences(first, second)
    assert not differences(first, second, values_may_differ=True)
    assert differences(first, {"w": np.array([0.125, 5.0])}, values_may_differ=True) == ["['w']: lattice"]
    assert differences({"n": 1}, {"n": 2}, values_may_differ=True)


def test_the_finest_bit_of_denormals_and_large_numbers():
    assert finest_bit(np.array([5e-324])) == -1074
    assert finest_bit(np.array([2.0**1000, 3 * 2.0**998])) == 998
    assert finest_bit(np.array([np.inf])) is None
