"""Rows on a Dask cluster: the same bits as on one machine, whatever becomes of the workers."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import warnings
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from gratis import (
    DPAdditiveRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRandomFeaturesClassifier,
    DPRandomFeaturesRegressor,
)
from gratis.audits.estimators import audit
from gratis.audits.hostile import HostileTables
from gratis.audits.hostile import Table as Drawn
from gratis.audits.replay import record
from gratis.audits.trainings import audit_tables, estimator_training, on_cluster
from gratis.estimators.released_arrays import released_arrays
from gratis.estimators.table_fit import plan_table_fit
from gratis.ledger import Ledger
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.records.progress import following
from gratis.records.settings import Descent
from gratis.rows import cluster_client
from gratis.rows.cluster import ClusterRows, block_sum, rows_per_block
from gratis.rows.cluster_client import checked_client, connected
from gratis.rows.cluster_table import ClusterTable
from gratis.rows.encoding import Column, EncodedRows, Kind, TableSchema
from gratis.rows.tables import Table, open_table

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

SEEDED = {"epsilon": 1.0, "delta": 1e-5, "noise_seed": 3, "insecure_reproducible": True}


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", protocol="inproc://"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def table(n=9000, d=3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * [1.0, 10.0, 100.0] + 5
    return X, X @ [1.0, 0.1, 0.01] + rng.normal(size=n)


def held(client, X):
    return client.submit(lambda: (X,), pure=False)


@pytest.mark.slow(but=["DPAdditiveRegressor"])
@pytest.mark.parametrize(
    "kind",
    [
        DPLinearRegression,
        DPAdditiveRegressor,
        DPLogisticRegression,
        DPRandomFeaturesRegressor,
        DPRandomFeaturesClassifier,
    ],
)
def test_the_same_bits_as_on_one_machine(client, kind, monkeypatch):
    monkeypatch.setattr("gratis.rows.cluster._BLOCK_NUMBERS", 4096 * 3)  # several blocks of one chunk
    X, y = table()
    options = dict(SEEDED)
    if kind in (DPRandomFeaturesRegressor, DPRandomFeaturesClassifier):
        options |= {"n_features": 20, "descent": Descent(steps=2)}
    if kind in (DPLogisticRegression, DPRandomFeaturesClassifier):
        y, options = np.where(y > y.mean(), "high", "low"), options | {"classes": ["low", "high"]}
    here = kind(**options).fit(X, y)
    there = kind(**options).fit(da.from_array(X, chunks=(1000, 2)), da.from_array(y, chunks=700))
    assert there.certificate_.event == here.certificate_.event
    for name, value in released_arrays(here).items():
        np.testing.assert_array_equal(released_arrays(there)[name], value, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [1, 2, 4])
@pytest.mark.parametrize("n", [100, 4096 * 4, 4096 * 7 + 5])
def test_blocks_of_any_power_of_two_fill_the_same_tree(client, chunks, n):
    X = np.random.default_rng(n).normal(size=(n, 1)) * 10.0 ** np.random.default_rng(1).integers(-8, 8, size=(n, 1))
    size = 4096 * chunks
    blocks = [held(client, X[start : start + size]) for start in range(0, n, size)]
    rows = ClusterRows(client, blocks, n, 1)
    doubled = rows.mapped(lambda x: (2 * x,))
    assert doubled.total(lambda x: x.sum(axis=0)) == 2 * Rows.held(X).total(lambda x: x.sum(axis=0))


def test_a_data_frame(client):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    X, y = table(2000)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    parts = dd.from_pandas(frame, npartitions=3)
    there = DPLinearRegression(**SEEDED).fit(parts[["a", "b", "c"]], parts["y"])
    here = DPLinearRegression(**SEEDED).fit(frame[["a", "b", "c"]], frame["y"])
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert list(there.feature_names_in_) == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("garbage", id="no list"),
        pytest.param([(0, np.full(3, np.nan))], id="not finite"),
        pytest.param([(0, np.zeros(3, dtype=np.float32))], id="another type"),
        pytest.param([(0, np.zeros(4))], id="another shape"),
    ],
)
def test_garbage_of_a_worker_is_refused(client, answer, monkeypatch):
    X, _ = table(5000)
    blocks = [held(client, X[:4096]), held(client, X[4096:])]

    def poisoned(block, work):
        return answer if len(block[0]) < 4096 else block_sum(block, work)

    monkeypatch.setattr("gratis.rows.cluster.block_sum", poisoned)
    with pytest.raises(GratisError, match="no finite sum"):
        ClusterRows(client, blocks, 5000, 3).total(lambda x: x.sum(axis=0))


@pytest.mark.slow
def test_what_a_worker_raises_is_shown_nowhere(client, caplog):
    X, _ = table(100)

    def failing(x):
        raise ValueError(f"private {x[0]}")

    with pytest.raises(GratisError, match="could not be added up") as caught:
        ClusterRows(client, [held(client, X)], 100, 3).total(failing)
    assert "private" not in str(caught.value) + caplog.text
    assert caught.value.__context__ is None


def replayed(kind, relation, n=4100, pairs=4, **options):
    """A training whose hostile record is in one of two blocks, and neighbours of it."""
    labels = [0, 1] if hasattr(kind, "classes") else None
    tables = HostileTables(n=n, d=2, classes=labels, invalid=True)
    options |= {"epsilon": 4.0, "delta": 1e-5, "neighbouring": str(relation), "on_invalid": "impute"}
    options |= {} if labels is None else {"classes": labels}

    def training(rows):
        return estimator_training(lambda: kind(**options), rows, on_cluster)

    rng = np.random.default_rng(1)
    record(training(tables.draw(rng)))
    return audit_tables(training, tables, relation, pairs=pairs, rng=rng)


@pytest.mark.slow
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (DPLinearRegression, {"descent": Descent(steps=4)}),
        (DPAdditiveRegressor, {}),
        (DPRandomFeaturesClassifier, {"n_features": 10, "descent": Descent(steps=2)}),
    ],
)
def test_replay_on_hostile_neighbours(client, kind, options, relation, monkeypatch):
    monkeypatch.setattr("gratis.rows.cluster._BLOCK_NUMBERS", 4096 * 2)
    found = replayed(kind, relation, **options)
    assert not found.alarm, (found.verdict, found.differences)
    assert found.hidden == 0
    assert found.largest_ratio > 0.3


@pytest.mark.slow
def test_a_block_that_is_counted_twice_is_noticed(client, monkeypatch):
    """The negative control: a worker's answer that comes again must not be added again."""
    monkeypatch.setattr("gratis.rows.cluster._BLOCK_NUMBERS", 4096 * 2)

    def twice(block, work):
        return [(level, 2 * part) for level, part in block_sum(block, work)]

    monkeypatch.setattr("gratis.rows.cluster.block_sum", twice)
    found = replayed(DPLinearRegression, Neighbouring.ZERO_OUT, descent=Descent(steps=4))
    assert found.largest_ratio > 1.5


@pytest.mark.slow
def test_the_replay_of_an_estimator_on_a_cluster(capsys):
    from gratis.cli.program import run

    assert run(["audit", "replay", "linear", "--pairs", "2", "--cluster"]) == 0
    assert "linear: consistent with the proof; 2 hostile pairs" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 40])
def test_an_audit_on_a_cluster_has_several_blocks(client, n, monkeypatch):
    """The negative control: all blocks but the first are counted twice, which a single block would not show."""
    from gratis.rows import cluster

    whole, lengths = cluster.kept_blocks, []

    def again(client, blocks, *sizes):
        kept = whole(client, blocks, *sizes)
        lengths.append(len(kept))
        return kept + kept[1:]

    model = DPLinearRegression(epsilon=4.0, delta=1e-5, descent=Descent(steps=4))
    monkeypatch.setattr(cluster, "kept_blocks", again)
    found = audit(model, rows=n, pairs=8, cluster=True)
    assert min(lengths) >= 4
    assert found.alarm
    assert found.largest_ratio > 1.2
    assert rows_per_block(3) == 4096 * 256  # as it was


@pytest.mark.slow
def test_persons_are_not_audited_on_a_cluster(client, capsys):
    """They were, without their ids: rows as units against a certificate of persons, a false alarm."""
    from gratis.cli.program import run

    assert run(["audit", "replay", "linear", "--pairs", "2", "--cluster", "--persons"]) == 2
    assert "groups need all rows in one memory" in capsys.readouterr().err
    X, y = table(400)
    model = DPLinearRegression(epsilon=1.0, delta=1e-5).fit(X, y, groups=np.arange(400) // 4)
    with pytest.raises(GratisError, match="groups need all rows in one memory"):
        audit(model, pairs=2, cluster=True)
    with pytest.raises(GratisError, match="groups need all rows in one memory"):
        on_cluster(model, Drawn("persons", X, y, 0, groups=np.arange(400)))


@pytest.mark.slow
def test_what_needs_more_than_sums_is_refused_before_the_ledger(client, tmp_path):
    X, y = table(1000)
    X, y = da.from_array(X), da.from_array(np.where(y > 0, 1.0, 0.0))
    ledger = Ledger.create(tmp_path / "l", {"rows": Budget(epsilon=9.0, delta=1e-4)})
    spending = {"ledger": tmp_path / "l", "dataset": "rows"}
    for model in (
        DPRandomFeaturesRegressor(**SEEDED, **spending, descent=Descent(engine="dual")),
        DPMLPClassifier(**SEEDED, **spending, classes=[0, 1]),
        DPLinearRegression(**SEEDED, **spending, algorithm="one-pass"),
    ):
        with pytest.raises(GratisError, match=r"in memory|one machine"):
            model.fit(X, y)
    assert ledger.status("rows").reservations == 0


@pytest.mark.slow
def test_few_rows_and_many_features_run_in_the_primal(client):
    """One machine would take the dual, which needs all inner products; its law is the same, its bits are not."""
    X, y = table(300)
    options = SEEDED | {"n_features": 2000, "descent": Descent(steps=200)}
    there = DPRandomFeaturesRegressor(**options).fit(da.from_array(X), da.from_array(y))
    assert DPRandomFeaturesRegressor(**options).fit(X, y).engine_ == "dual"
    assert there.engine_ == "primal"
    primal = DPRandomFeaturesRegressor(**options | {"descent": Descent(steps=200, engine="primal")}).fit(X, y)
    np.testing.assert_array_equal(there.coef_, primal.coef_)


@pytest.mark.slow
def test_invalid_rows_on_a_cluster(client):
    X, y = table(3000)
    X[7, 1], y[9] = np.nan, np.inf
    with pytest.raises(GratisError, match="missing, infinite"):
        DPLinearRegression(**SEEDED).fit(da.from_array(X), da.from_array(y))
    there = DPLinearRegression(**SEEDED, on_invalid="zero").fit(da.from_array(X), da.from_array(y))
    here = DPLinearRegression(**SEEDED, on_invalid="zero").fit(X, y)
    np.testing.assert_array_equal(there.coef_, here.coef_)


@pytest.mark.slow
def test_without_a_cluster(monkeypatch):
    X, y = (da.from_array(part) for part in table(100))

    def none():
        raise ValueError("No clients found")

    monkeypatch.setattr(distributed, "default_client", none)
    with pytest.raises(GratisError, match="no Dask cluster"):
        DPLinearRegression(**SEEDED).fit(X, y)


def test_lengths_of_blocks_are_public():
    assert rows_per_block(1) % 4096 == 0
    assert rows_per_block(10**9) == 4096


@pytest.fixture
def folder(tmp_path):
    """A table in three Parquet files of several row groups, with a text column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y = table(20_000)
    kind = np.where(np.arange(len(y)) % 3 == 0, "a", "b")
    whole = pa.table({"x1": X[:, 0], "x2": X[:, 1], "kind": kind, "y": y})
    (tmp_path / "rows").mkdir()
    for place, (start, stop) in enumerate(((0, 7000), (7000, 7001), (7001, 20_000))):
        pq.write_table(whole.slice(start, stop - start), tmp_path / "rows" / f"{place}.parquet", row_group_size=3000)
    return tmp_path / "rows"


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [0.0, 0.25])
def test_blocks_of_a_folder_are_its_rows(folder, held_out):
    job = plan_table_fit(
        folder, "y", Budget(epsilon=1.0, delta=1e-6), model="linear", levels={"kind": ("a", "b")}, held_out=held_out
    )
    X, y = job.training.arrays()
    blocks = job.training.blocks(4096)
    assert [block.n_rows for block in blocks[:-1]] == [4096] * (len(blocks) - 1)
    found = [block.arrays() for block in blocks]
    np.testing.assert_array_equal(np.concatenate([part for part, _ in found]), X)
    np.testing.assert_array_equal(np.concatenate([part for _, part in found]), y)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_a_folder_on_a_cluster(client, folder, kept, monkeypatch):
    monkeypatch.setattr("gratis.rows.cluster._BLOCK_NUMBERS", 4096 * 4)
    if not kept:  # read at every release, in longer blocks
        monkeypatch.setattr("gratis.rows.cluster_client._KEPT_SHARE", 0.0)
        monkeypatch.setattr("gratis.rows.cluster_table._BLOCKS_PER_WORKER", 1)
    job = plan_table_fit(
        folder, "y", Budget(epsilon=1.0, delta=1e-6), model="linear", levels={"kind": ("a", "b")},
        options={"noise_seed": 1, "insecure_reproducible": True, "descent": Descent(steps=3)},
    )  # fmt: skip
    job.check(client)
    there, here = (job.run(cluster=cluster).estimator for cluster in (client, None))
    for name, value in released_arrays(here).items():
        np.testing.assert_array_equal(released_arrays(there)[name], value, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "model"), [("y", "linear"), ("kind", "logistic")])
def test_levels_and_scores_on_a_cluster(client, folder, target, model, monkeypatch):
    """Found and computed on workers, and the same bits as in the memory of one machine, and as streamed there."""
    from gratis.estimators import table_job

    monkeypatch.setattr("gratis.rows.cluster._BLOCK_NUMBERS", 4096 * 4)
    monkeypatch.setattr(table_job.NoiseSource, "secure", lambda: NoiseSource.insecure(7))
    searched = {"private_levels": ["kind"]} if target == "y" else {"classes": ["a", "b"]}
    options = {"noise_seed": 1, "insecure_reproducible": True, "descent": Descent(steps=3)}

    def done(cluster, memory):
        job = plan_table_fit(
            folder, target, Budget(epsilon=1.0, delta=1e-6), model=model, held_out=0.25, options=options,
            memory_bytes=memory, **searched,
        )  # fmt: skip
        job.check(cluster)
        found = job.run(cluster=cluster)
        return found.score.estimates, found.job.found, released_arrays(found.estimator)

    here, there, streamed = done(None, 4e9), done(client, 4e9), done(None, 1)
    if target == "y":
        assert set(here[1].levels["kind"]) == {"a", "b"}
        assert here[1].counts == there[1].counts == streamed[1].counts
    assert here[0] == there[0] == streamed[0]
    for name, value in here[2].items():
        np.testing.assert_array_equal(there[2][name], value, err_msg=name)
        np.testing.assert_array_equal(streamed[2][name], value, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([Counter(a=5000)], id="more than rows"),
        pytest.param([Counter(a=-1)], id="negative"),
        pytest.param([Counter({1: 1})], id="no text"),
        pytest.param([Counter(a=1), Counter()], id="another number of columns"),
        pytest.param("garbage", id="no list"),
    ],
)
def test_counts_that_no_rows_have_are_refused(client, folder, answer, monkeypatch):
    table = open_table(folder)
    schema = TableSchema((Column(name="kind", kind=Kind.CATEGORICAL, levels=("a", "b")),))
    rows = EncodedRows(table, schema, Column(name="y", kind=Kind.NUMERIC), 4096, chosen=np.arange(20_000) < 4096)
    with pytest.raises(GratisError, match="no finite sum"):
        ClusterTable(client, rows).counts(lambda block: answer, 1)
    with pytest.raises(GratisError, match="could not be added up"):
        ClusterTable(client, rows).counts(lambda block: 1 / 0, 1)


@pytest.mark.slow
def test_text_that_the_workers_cannot_keep_is_refused_before_the_ledger(client, tmp_path, monkeypatch):
    """Every block would be read from the beginning of the file, at every release."""
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "\n".join(f"{a},{a % 7}" for a in range(5000)))
    ledger = Ledger.create(tmp_path / "l", {"rows": Budget(epsilon=9.0, delta=1e-4)})
    job = plan_table_fit(path, "y", Budget(epsilon=1.0, delta=1e-6), model="linear", task="regression")
    monkeypatch.setattr("gratis.rows.cluster_client._KEPT_SHARE", 0.0)
    with pytest.raises(GratisError, match="convert it to Parquet first"):
        job.run(cluster=client, ledger=tmp_path / "l", dataset="rows")
    assert ledger.status("rows").reservations == 0


@pytest.fixture
def one_file(tmp_path, monkeypatch):
    """A table of two blocks, and its reversal: in the same number of bytes, at the same time if that is wanted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr("gratis.rows.cluster._BLOCK_NUMBERS", 4096 * 2)
    rng = np.random.default_rng(0)
    columns = {"x": np.arange(8192.0), "kind": np.where(np.arange(8192) % 2, "a", "b"), "y": rng.normal(size=8192)}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)

    def reverse(*, hide):
        before = os.stat(path)
        backwards = {name: values[::-1] for name, values in columns.items()}
        pq.write_table(pa.table(backwards), path, compression="none", use_dictionary=False)
        assert path.stat().st_size == before.st_size
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + (not hide)))

    return path, reverse


def spending(tmp_path):
    ledger = Ledger.create(tmp_path / "l", {"rows": Budget(epsilon=9.0, delta=1e-4)})
    return ledger, {"ledger": tmp_path / "l", "dataset": "rows"}


def linear_job(path, **choices):
    choices = {"model": "linear", "options": {"descent": Descent(steps=2)}} | choices
    return plan_table_fit(path, "y", Budget(epsilon=1.0, delta=1e-6), task="regression", **choices)


KIND = {"levels": {"kind": ("a", "b")}}


@pytest.mark.slow
@pytest.mark.parametrize("noticed_by", ["workers", "coordinator"])
def test_a_table_that_changed_before_it_was_loaded_is_refused(client, one_file, tmp_path, noticed_by, monkeypatch):
    """Rows of the first half would be in both blocks. Nothing is reserved for them."""
    path, reverse = one_file
    if noticed_by == "coordinator":
        monkeypatch.setattr(Table, "_refuse_other_content", lambda self: None)
    ledger, account = spending(tmp_path)
    job = linear_job(path, **KIND)
    job.check(client)
    with pytest.raises(GratisError, match=r"no longer the one|changed after it was opened"):
        job.run(cluster=client, begin=lambda: reverse(hide=noticed_by == "workers"), **account)
    assert job.table.changed() == (noticed_by == "coordinator")
    assert ledger.status("rows").reservations == 0


@pytest.mark.slow
def test_a_table_that_changes_while_it_is_read_at_every_release(client, one_file, monkeypatch):
    path, reverse = one_file
    monkeypatch.setattr("gratis.rows.cluster_client._KEPT_SHARE", 0.0)
    assert not linear_job(path, **KIND).run(cluster=client).context["changed"]
    job = linear_job(path, **KIND)
    with pytest.raises(GratisError, match="no longer the one that was opened"):
        job.run(cluster=client, begin=lambda: reverse(hide=True))
    job = linear_job(path, **KIND)
    done = job.run(cluster=client, begin=lambda: os.utime(path))  # the same rows: noted, as for streams
    assert done.context["changed"]


@pytest.mark.slow
def test_levels_of_a_table_that_changes_are_not_released(client, one_file):
    path, reverse = one_file
    for change in (lambda: reverse(hide=True), lambda: os.utime(path)):
        job, kept = linear_job(path, private_levels=["kind"]), []
        with pytest.raises(GratisError, match="no longer the one that was opened"):
            job.run(cluster=client, begin=change, keep=kept.append)
        assert not kept


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [True, False])
def test_no_score_of_a_table_that_changed_while_it_was_scored(client, one_file, cluster, monkeypatch):
    from gratis.estimators import table_job

    path, _ = one_file
    whole = table_job.evaluate_rows

    def scored(*arguments):
        os.utime(path)
        return whole(*arguments)

    monkeypatch.setattr(table_job, "evaluate_rows", scored)
    job = linear_job(path, held_out=0.2, memory_bytes=4e9 if cluster else 1, **KIND)
    done = job.run(cluster=client if cluster else None)
    assert done.score is None
    assert "held-out rows were read" in done.context["no_score"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.jsonl", "t.xlsx"])
def test_a_table_held_in_memory_is_not_sent_to_workers(client, tmp_path, name):
    path = tmp_path / name
    if name == "t.jsonl":
        path.write_text("\n".join(json.dumps({"x": float(i), "y": float(i % 7)}) for i in range(100)))
    else:
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for row in (("x", "y"), *((float(i), float(i % 7)) for i in range(100))):
            book.active.append(row)
        book.save(path)
    ledger, account = spending(tmp_path)
    for step in (lambda job: job.check(client), lambda job: job.run(cluster=client, **account)):
        with pytest.raises(GratisError, match="to Parquet first; nothing was spent"):
            step(linear_job(path))
    assert ledger.status("rows").reservations == 0


@pytest.mark.slow
@pytest.mark.parametrize("ruled_out", ["csv", "dual", "dual, streamed"])
def test_levels_are_not_paid_for_a_fit_that_public_facts_rule_out(client, tmp_path, ruled_out, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a,kind,y\n" + "\n".join(f"{a},{'uv'[a % 2]},{a % 7}" for a in range(5000)))
    dual = {"n_features": 50, "descent": Descent(steps=2, engine="dual")}
    chosen = {} if ruled_out == "csv" else {"model": "random-features", "options": dual}
    streamed = ruled_out == "dual, streamed"
    if ruled_out == "csv":  # as wide as the assumed levels it is kept, but not as wide as the search may make it
        memory = sum(worker["memory_limit"] for worker in cluster_client.workers(client))
        monkeypatch.setattr("gratis.rows.cluster_client._KEPT_SHARE", 8.0 * 5000 * 20 / memory)
    job = linear_job(path, private_levels=["kind"], memory_bytes=1.0 if streamed else 4e9, **chosen)
    ledger, account = spending(tmp_path)
    cluster = None if streamed else client
    for step in (lambda: job.check(cluster), lambda: job.run(cluster=cluster, **account)):
        with pytest.raises(GratisError, match=r"to Parquet first|needs all rows in one memory"):
            step()
    assert ledger.status("rows").reservations == 0


@pytest.mark.slow
def test_no_scratch_file_is_announced_for_a_cluster(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "\n".join(f"{a},{a % 7}" for a in range(5000)))
    job = linear_job(path, memory_bytes=1.0)
    assert "scratch file" in " ".join(job.words())
    assert "scratch file" not in " ".join(job.words(cluster=True))


@pytest.mark.slow
def test_what_a_check_raises_is_shown_nowhere(client, one_file, caplog, monkeypatch):
    def failing(self, **_):
        raise ValueError("private cell")

    monkeypatch.setattr(EncodedRows, "problems", failing)
    with pytest.raises(GratisError, match="a worker cannot read the table"):
        linear_job(one_file[0], **KIND).check(client)
    assert "private cell" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "refused"), [(3, False), (4, True)])
def test_lost_answers_are_asked_for_again(client, lost, refused, monkeypatch):
    """Each of two blocks loses as many answers; what arrives is counted once."""
    X, _ = table(5000)
    whole, asked = cluster_client._result, Counter()
    rows = ClusterRows(client, [held(client, X[:4096]), held(client, X[4096:])], 5000, 3)
    expected = Rows.held(X).total(lambda x: x.sum(axis=0))

    def result(answer):
        found = whole(answer)
        asked[found[0][1].tobytes()] += 1
        return found if asked[found[0][1].tobytes()] > lost else None

    monkeypatch.setattr("gratis.rows.cluster_client._result", result)
    if refused:
        with pytest.raises(GratisError, match="could not be added up"):
            rows.total(lambda x: x.sum(axis=0))
    else:
        np.testing.assert_array_equal(rows.total(lambda x: x.sum(axis=0)), expected)


@pytest.fixture(scope="module")
def processes():
    """A cluster as `--cluster local:2` makes it, which gives a task up when one worker died of it."""
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), connected("local:2") as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("when", ["added", "loaded"])
def test_a_task_that_kills_its_worker_is_done_by_another(processes, when, tmp_path):
    X, marker = np.ones((10, 2)), str(tmp_path / "died")

    def once(values):
        if not os.path.exists(marker):
            open(marker, "w").close()
            os._exit(1)
        return values

    def load():
        return (once(X),) if when == "loaded" else (X,)

    rows = ClusterRows(processes, [processes.submit(load, pure=False)], 10, 2)
    found = rows.total(lambda x: (once(x) if when == "added" else x).sum(axis=0))
    np.testing.assert_array_equal(found, [10.0, 10.0])
    assert os.path.exists(marker)


@pytest.mark.slow
def test_the_size_of_what_is_sent_is_not_warned_about(one_file):
    """It may follow from private values. Warnings are errors here."""
    dask = pytest.importorskip("dask")

    class Here:
        """Without threads: those of a cluster in this process change the filters of one another."""

        def compute(self, tasks):
            warnings.warn("Sending large graph of size", UserWarning, stacklevel=2)
            return [
                SimpleNamespace(result=partial(task.compute, scheduler="sync"), release=lambda: None) for task in tasks
            ]

        def scheduler_info(self, **_):
            return {"workers": {"one": {"memory_limit": 0}}}

    job = linear_job(one_file[0], private_levels=["kind"], held_out=0.2)
    job.check(Here())
    assert job.run(cluster=Here()).score is not None
    assert cluster_client.kept_blocks(Here(), [dask.delayed(1)], 0, 0)[0].result() == 1
    with pytest.warns(UserWarning, match="Sending large graph"):
        Here().compute([])


@pytest.mark.slow
def test_nobody_else_connects_to_a_local_cluster(processes):
    address = processes.scheduler.address
    assert address.startswith("tls://127.0.0.1:")

    async def knock(address, security, timeout):
        comm = await distributed.comm.connect(address, timeout=timeout, **security.get_connection_args("client"))
        await comm.close()

    asyncio.run(knock(address, processes.security, 60))
    plain, other = distributed.Security(), distributed.Security.temporary()
    for asked, security in ((address.replace("tls:", "tcp:"), plain), (address, plain), (address, other)):
        with pytest.raises((OSError, TypeError)):
            asyncio.run(knock(asked, security, 1))
    page = processes.cluster.dashboard_link.removesuffix("/status")
    for path in ("/info/main/workers.html", "/json/counts.json", "/status"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(page + path)


@pytest.mark.slow
def test_a_local_cluster_writes_no_row_to_a_disk(processes):
    def spills(dask_worker=None):
        manager = dask_worker.memory_manager
        return manager.memory_target_fraction, manager.memory_spill_fraction

    processes.wait_for_workers(1)
    assert set(processes.run(spills).values()) == {(False, False)}


def test_a_local_cluster_without_keys_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(GratisError, match=r"pip install .*cryptography"), connected("local:1"):
        pass


@pytest.mark.slow
def test_workers_of_another_version_are_refused_before_anything_is_spent(client, monkeypatch):
    X, y = (da.from_array(part) for part in table(100))
    monkeypatch.setattr("gratis.rows.cluster_client._ours", lambda: ("0.0.1", "3.11"))
    with pytest.raises(GratisError, match=r"2 of 2 workers lack gratis 0\.0\.1 on Python 3\.11.*nothing was spent"):
        DPLinearRegression(**SEEDED).fit(X, y)


@pytest.mark.slow
def test_a_worker_without_gratis_is_one_sentence(tmp_path, capsys):
    """A real process, in which neither the package nor its metadata can be found."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m, sys\n"
        "whole = m.version\n"
        "def missing(name):\n"
        "    if name == 'gratis': raise m.PackageNotFoundError(name)\n"
        "    return whole(name)\n"
        "class Hidden:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] == 'gratis': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "m.version = missing\n"
    )
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None, protocol="tcp://") as cluster,
        distributed.Client(cluster) as client,
    ):
        worker = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, "--no-nanny",
             "--no-dashboard", "--nthreads", "1", "--local-directory", str(tmp_path)],
            env=os.environ | {"PYTHONPATH": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            client.wait_for_workers(1)
            with pytest.raises(GratisError, match="1 of 1 workers lack gratis"):
                checked_client(client)
        finally:
            worker.terminate()
            worker.wait()


@pytest.mark.slow
def test_files_of_a_folder_with_other_columns_are_one_sentence(folder, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gratis.cli.program import run

    pq.write_table(pa.table({"x1": [1.0], "kind": ["a"], "y": [1.0]}), folder / "3.parquet")
    budget = ["--epsilon", "1", "--delta", "1e-6", "--levels", "kind=a,b", "--output", str(folder.parent / "out")]
    assert run(["fit", str(folder), "--target", "y", *budget, "--cluster", "local:2"]) == 2
    said = capsys.readouterr().err
    assert "'3.parquet' has other columns or types than '0.parquet'" in said
    assert not (folder.parent / "out").exists()


@pytest.mark.slow
def test_a_wrong_address_is_one_sentence(folder, capsys, monkeypatch):
    from gratis.cli.program import run

    monkeypatch.setattr("gratis.rows.cluster_client._PATIENCE", 1)
    budget = ["--epsilon", "1", "--delta", "1e-6", "--levels", "kind=a,b", "--output", str(folder.parent / "out")]
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "local:0"):
        assert run(["fit", str(folder), "--target", "y", *budget, "--cluster", address]) == 2
        assert "no Dask scheduler answers" in capsys.readouterr().err


@pytest.mark.slow
def test_readings_on_a_cluster_tell_how_far_they_are(client, tmp_path):
    """A share of the blocks, which is a public count, before anything is spent and at every release."""
    path = tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    path.write_text("a,y\n" + "\n".join(f"{a:.3f},{y:.3f}" for a, y in rng.normal(size=(30_000, 2))))
    table = open_table(path)
    rows = EncodedRows(table, TableSchema.of(table, target="y"), Column(name="y", kind=Kind.NUMERIC), 30_000)
    told = []
    with following(lambda name, share: told.append((name, share))):
        ClusterTable(client, rows).validate()
    assert told[0] == ("reading", 0.0)
    assert told[-1] == ("reading", 1.0)
