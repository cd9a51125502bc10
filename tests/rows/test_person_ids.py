"""Ids of any kind."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from gratis.records.errors import GratisError
from gratis.rows.person_ids import held_out_persons, number_persons, person_names


class Unspeakable:
    def __str__(self):
        raise RuntimeError("no")


def test_one_person_is_not_two_by_another_type_or_writing():
    assert set(person_names([7, 7.0, "7", "007", " 7 ", "7.0", np.float64(7), np.int8(7), b"7", "+7"])) == {"7"}
    assert set(person_names([0, -0.0, "0", "-0", False])) == {"0"}
    assert set(person_names(["ann", " ann", b"ann", np.str_("ann")])) == {"ann"}
    assert len(set(person_names(["ann", "Ann", "7", "7.5", "-7", 8]))) == 6


@pytest.mark.parametrize(
    "nobody", [None, np.nan, float("inf"), "", "  ", "NA", "nan", pd.NaT, pd.NA, np.datetime64("NaT"), Unspeakable()]
)
def test_what_is_missing_is_nobody_and_never_raises(nobody):
    assert person_names([nobody, "a"]).tolist() == ["", "a"]
    numbers, count = number_persons(person_names([nobody, "a", "b"]))
    assert (numbers.tolist(), count) == ([-1, 0, 1], 2)


def test_arrays_series_and_large_numbers_keep_their_ids():
    large = 2**62
    for ids in (np.array([large, large + 1, large]), pd.Series([large, large + 1, large]), [large, large + 1, large]):
        assert number_persons(person_names(ids))[0].tolist() == [0, 1, 0]
    assert number_persons(person_names(pd.Series(["x", None, "y"], dtype="category")))[1] == 2
    assert number_persons(person_names(pd.to_datetime(["2020-01-01", "2020-01-02"])))[1] == 2
    assert number_persons(person_names([(1, 2), (1, 2), [3]]))[1] == 2
    assert number_persons(person_names(["a\0", "a"]))[1] == 1


def test_one_id_a_row():
    with pytest.raises(GratisError, match="one id"):
        person_names(np.zeros((3, 2)))


def test_who_is_held_out_depends_on_nobody_else():
    names = person_names(range(1000))
    held = held_out_persons(names, 0.3)
    assert 0.2 < held.mean() < 0.4
    order = np.random.default_rng(0).permutation(1000)[:100]
    assert (held_out_persons(names[order], 0.3) == held[order]).all()


def test_one_long_id_costs_no_memory_for_all_rows():
    """A text array is as wide as its longest entry: 100,000 characters for each of 5,000 rows were 2 GB."""
    ids = person_names([f"p{i % 500}" for i in range(5000)] + ["x" * 100_000, "\ud800"])
    tracemalloc.start()
    numbers, count = number_persons(ids)
    held_out_persons(ids, 0.2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 502
    assert (numbers[:500] == numbers[500:1000]).all()
    assert peak < 5e6
