"""The generator of hostile neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.audits.hostile import FINITE_RECORDS, INVALID_RECORDS, TABLES, HostileTables


def same(a, b):
    return np.array([repr(x) == repr(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])


@pytest.mark.parametrize("classes", [None, (0, 1), ("a", "b", "c")])
@pytest.mark.parametrize("invalid", [False, True])
def test_neighbours_differ_in_one_record_only(classes, invalid):
    tables, rng = HostileTables(n=21, d=3, classes=classes, invalid=invalid), np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        table = tables.draw(rng)
        for near in (tables.neighbour(table, rng), *((tables.without(table, rng),) if invalid else ())):
            others = np.arange(21) != table.row
            assert same(table.X[others], near.X[others]).all()
            assert same(table.y[others], near.y[others]).all()
            assert near.row == table.row
            assert near.y.dtype == table.y.dtype
        seen.add(table.row)
        if not invalid:
            assert np.isfinite(near.X).all()
            assert classes is None or set(near.y.tolist()) <= set(classes)
    assert {0, 10, 20} <= seen


def test_every_kind_of_record_and_table_is_drawn():
    tables, rng = HostileTables(n=12, d=2, invalid=True), np.random.default_rng(1)
    names = [tables.draw(rng).name for _ in range(2000)]
    for kind in TABLES:
        assert any(name.startswith(f"{kind} rows") for name in names), kind
    for kind in FINITE_RECORDS | INVALID_RECORDS:
        assert any(f"; {kind}, target" in name for name in names), kind


def test_records_are_what_their_names_say():
    X, rng = np.arange(12.0).reshape(4, 3), np.random.default_rng(2)
    near = FINITE_RECORDS["near duplicate"](X, 0, rng)
    assert 0 < np.abs(X[1:] - near).max(axis=1).min() < 1e-8
    assert (FINITE_RECORDS["last in every order"](X, 0, rng) > X.max(axis=0)).all()
    assert np.signbit(FINITE_RECORDS["negative zeros"](X, 0, rng)).all()
    assert not np.isfinite(INVALID_RECORDS["missing and inf"](X, 0, rng)).any()


def test_classes_keep_several_members_and_labels_outside_come_when_allowed():
    rng = np.random.default_rng(3)
    strict = HostileTables(n=20, d=2, classes=(0, 1), invalid=True, outside=False)
    loose = HostileTables(n=20, d=2, classes=(0, 1), invalid=True)
    drawn = [strict.draw(rng).y for _ in range(100)]
    assert all(min((y == 0).sum(), (y == 1).sum()) >= 2 for y in drawn)
    assert any(not np.isin(loose.draw(rng).y, [0, 1]).all() for _ in range(20))
    # Where the others are almost all unlike each other, one label decides on scikit-learn's warning.
    assert any(len(np.unique(loose.draw(rng).y)) > 10 for _ in range(300))
