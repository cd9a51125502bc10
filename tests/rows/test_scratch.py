"""A text file larger than memory is parsed once; its numbers stay in a file that nobody else can open."""

import gc
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from gratis import DPAdditiveRegressor, DPLinearRegression, DPRandomFeaturesRegressor
from gratis.estimators.released_arrays import released_arrays
from gratis.estimators.table_fit import plan_table_fit
from gratis.records.budget import Budget
from gratis.records.progress import following
from gratis.records.settings import Descent
from gratis.rows import scratch
from gratis.rows.scratch import ScratchRows, parsed_once, scratch_folder
from gratis.rows.streaming import ArrayRows, open_rows
from gratis.rows.tables import CSVTable

SEEDED = {"epsilon": 1.0, "delta": 1e-6, "noise_seed": 1, "insecure_reproducible": True}
N = 5000


@pytest.fixture
def text(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.csv"
    numbers = enumerate(rng.normal(size=(N, 2)).tolist())
    lines = [f"{a!r},{'uv'[place % 2]},{a + y!r}" for place, (a, y) in numbers]
    path.write_text("a,kind,y\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every time that a text file is parsed, to its end."""
    seen: list[int] = []
    whole = CSVTable._read

    def read(self, *arguments):
        yield from whole(self, *arguments)
        seen.append(1)

    monkeypatch.setattr(CSVTable, "_read", read)
    return seen


def job(path: Path, memory: float = 1.0, **choices):
    options = {"noise_seed": 1, "insecure_reproducible": True}
    return plan_table_fit(
        path, "y", Budget(epsilon=1.0, delta=1e-6), model="linear", levels={"kind": ("u", "v")}, options=options,
        memory_bytes=memory, **choices,
    )  # fmt: skip


def test_a_table_is_parsed_once_and_gives_the_same_bits(text, readings):
    planned = job(text)
    assert any("parsed once" in words and "beside it" in words for words in planned.words())
    planned.check()
    before = len(readings)
    streamed = planned.run().estimator
    assert len(readings) == before + 1  # and not once for each of some 75 releases
    held = job(text, memory=4e9).run().estimator
    for name, value in released_arrays(held).items():
        np.testing.assert_array_equal(released_arrays(streamed)[name], value, err_msg=name)
    assert os.listdir(text.parent) == [text.name]


@pytest.mark.slow
def test_without_room_the_text_is_parsed_for_every_release(text, readings, monkeypatch):
    """The negative control; and a disk that is full before or after all changes nothing but the time."""
    room = monkeypatch.context()
    with room as patch:
        patch.setattr(scratch, "_ROOM", 1e18)
        planned = job(text)
        assert not any("parsed once" in words for words in planned.words())
        before = len(readings)
        first = planned.run().estimator
        assert len(readings) > before + 50

    def fail(*_):
        raise OSError("no space left on device")

    for full_at in ("write", "flush"):
        file = Mock(**{full_at: fail, "close": fail})
        monkeypatch.setattr(scratch.tempfile, "TemporaryFile", lambda file=file, **_: file)
        second = job(text).run().estimator
        np.testing.assert_array_equal(first.coef_, second.coef_)


def test_a_stream_of_numbers_in_text(text, readings, tmp_path):
    path = tmp_path / "numbers.csv"
    X = np.random.default_rng(1).normal(size=(N, 2))
    X[3, 0] = np.nan
    path.write_text("a,y\n" + "\n".join(f"{a!r},{y!r}" for a, y in X.tolist()))
    streamed = DPLinearRegression(**SEEDED, on_invalid="impute").fit(open_rows(path, target="y", n_rows=N))
    assert len(readings) == 1
    held = DPLinearRegression(**SEEDED, on_invalid="impute").fit(X[:, :1], X[:, 1])
    np.testing.assert_array_equal(streamed.coef_, held.coef_)


@pytest.mark.slow
def test_the_scratch_has_no_name_and_leaves_nothing_after_an_interruption(text, monkeypatch):
    seen = []

    class Interrupted(ArrayRows):
        def batches(self):
            yield from super().batches()
            seen.append(os.listdir(text.parent))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ScratchRows(Interrupted(np.ones((10, 2)), np.ones(10)), text.parent)
    if os.name == "posix":
        assert seen == [[text.name]]
    assert os.listdir(text.parent) == [text.name]


@pytest.mark.slow(but=["DPAdditiveRegressor"])
@pytest.mark.parametrize("kind", [DPLinearRegression, DPAdditiveRegressor, DPRandomFeaturesRegressor])
def test_the_scratch_is_gone_when_the_fit_ends(tmp_path, kind, monkeypatch):
    """Also where nobody collects cycles of references."""
    path, made = tmp_path / "numbers.csv", []
    numbers = np.random.default_rng(1).normal(size=(300, 2)).tolist()
    path.write_text("a,y\n" + "\n".join(f"{a!r},{y!r}" for a, y in numbers))
    whole = scratch.tempfile.TemporaryFile
    monkeypatch.setattr(scratch.tempfile, "TemporaryFile", lambda **choices: made.append(whole(**choices)) or made[-1])
    options = {"n_features": 10, "descent": Descent(steps=2)} if kind is DPRandomFeaturesRegressor else {}
    gc.disable()
    try:
        kind(**SEEDED, **options).fit(open_rows(path, target="y", n_rows=300))
        assert [file.closed for file in made] == [True]
    finally:
        gc.enable()


def test_rows_come_back_as_they_were_also_from_readings_that_overlap(tmp_path):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(1000, 3)), rng.normal(size=1000)
    X[5], y[7] = [np.nan, np.inf, -0.0], -np.inf
    told = []
    with following(lambda name, share: told.append((name, share))):
        kept = ScratchRows(ArrayRows(X, y, batch_rows=300), tmp_path)
    assert told[0] == ("converting", 0.0)
    assert told[-1] == ("converting", 1.0)
    for (a, b), (c, d) in zip(kept.batches(), kept.batches(), strict=True):
        assert a.tobytes() == c.tobytes()
        assert b.tobytes() == d.tobytes()
    again = [np.concatenate(parts) for parts in zip(*kept.batches(), strict=True)]
    assert again[0].tobytes() == X.tobytes()
    assert again[1].tobytes() == y.tobytes()


def test_where_it_goes(text, monkeypatch):
    assert scratch_folder(text, N, 3) == text.parent
    monkeypatch.setattr(scratch.os, "access", lambda folder, _: folder != text.parent)
    assert scratch_folder(text, N, 3) == Path(scratch.tempfile.gettempdir())
    assert scratch_folder(text, 10**15, 3) is None
    rows = ArrayRows(np.ones((10, 2)), np.ones(10))
    assert parsed_once(rows) is rows  # no text
