"""Rows on a Dask cluster: the same bits as on one machine, whatever becomes of the workers."""

import numpy as np
import pytest

from gratis import DPAdditiveRegressor, DPLinearRegression, DPLogisticRegression, DPRandomFeaturesRegressor
from gratis.estimators.released_arrays import released_arrays
from gratis.mechanisms.rows import Rows
from gratis.records.errors import GratisError
from gratis.records.progress import following
from gratis.rows.cluster import ClusterRows, ClusterTable, block_sum, rows_per_block
from gratis.rows.encoding import Column, EncodedRows, Kind, TableSchema
from gratis.rows.tables import open_table

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


@pytest.mark.parametrize("kind", [DPLinearRegression, DPAdditiveRegressor, DPLogisticRegression])
def test_the_same_bits_as_on_one_machine(client, kind, monkeypatch):
    monkeypatch.setattr("gratis.rows.cluster._BLOCK_NUMBERS", 4096 * 3)  # several blocks of one chunk
    X, y = table()
    options = dict(SEEDED)
    if kind is DPLogisticRegression:
        y, options = np.where(y > y.mean(), "high", "low"), options | {"classes": ["low", "high"]}
    here = kind(**options).fit(X, y)
    there = kind(**options).fit(da.from_array(X, chunks=(1000, 2)), da.from_array(y, chunks=700))
    assert there.certificate_.event == here.certificate_.event
    for name, value in released_arrays(here).items():
        np.testing.assert_array_equal(released_arrays(there)[name], value, err_msg=name)


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


def test_what_a_worker_raises_is_shown_nowhere(client, caplog):
    X, _ = table(100)

    def failing(x):
        raise ValueError(f"private {x[0]}")

    with pytest.raises(GratisError, match="could not be added up") as caught:
        ClusterRows(client, [held(client, X)], 100, 3).total(failing)
    assert "private" not in str(caught.value) + caplog.text
    assert caught.value.__context__ is None


def test_what_needs_more_than_sums_is_refused_before_the_ledger(client, tmp_path):
    X, y = (da.from_array(part) for part in table(1000))
    for model in (DPRandomFeaturesRegressor(**SEEDED), DPLinearRegression(**SEEDED, algorithm="one-pass")):
        with pytest.raises(GratisError, match=r"in memory|one machine"):
            model.fit(X, y)


def test_invalid_rows_on_a_cluster(client):
    X, y = table(3000)
    X[7, 1], y[9] = np.nan, np.inf
    with pytest.raises(GratisError, match="missing, infinite"):
        DPLinearRegression(**SEEDED).fit(da.from_array(X), da.from_array(y))
    there = DPLinearRegression(**SEEDED, on_invalid="zero").fit(da.from_array(X), da.from_array(y))
    here = DPLinearRegression(**SEEDED, on_invalid="zero").fit(X, y)
    np.testing.assert_array_equal(there.coef_, here.coef_)


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


@pytest.mark.parametrize("held_out", [0.0, 0.25])
def test_blocks_of_a_folder_are_its_rows(folder, held_out):
    from gratis.estimators.table_fit import plan_table_fit
    from gratis.records.budget import Budget

    job = plan_table_fit(
        folder, "y", Budget(epsilon=1.0, delta=1e-6), model="linear", levels={"kind": ("a", "b")}, held_out=held_out
    )
    X, y = job.training.arrays()
    blocks = job.training.blocks(4096)
    assert [block.n_rows for block in blocks[:-1]] == [4096] * (len(blocks) - 1)
    found = [block.arrays() for block in blocks]
    np.testing.assert_array_equal(np.concatenate([part for part, _ in found]), X)
    np.testing.assert_array_equal(np.concatenate([part for _, part in found]), y)


def test_a_folder_on_a_cluster(client, folder, monkeypatch):
    from gratis.estimators.table_fit import plan_table_fit
    from gratis.records.budget import Budget

    monkeypatch.setattr("gratis.rows.cluster._BLOCK_NUMBERS", 4096 * 4)
    job = plan_table_fit(
        folder, "y", Budget(epsilon=1.0, delta=1e-6), model="linear", levels={"kind": ("a", "b")},
        options={"noise_seed": 1, "insecure_reproducible": True},
    )  # fmt: skip
    job.check(client)
    there, here = (job.run(cluster=cluster).estimator for cluster in (client, None))
    for name, value in released_arrays(here).items():
        np.testing.assert_array_equal(released_arrays(there)[name], value, err_msg=name)


def test_a_wrong_address_is_one_sentence(folder, capsys, monkeypatch):
    from gratis.cli.program import run

    monkeypatch.setattr("gratis.rows.cluster._PATIENCE", 1)
    budget = ["--epsilon", "1", "--delta", "1e-6", "--levels", "kind=a,b", "--output", str(folder.parent / "out")]
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "local:0"):
        assert run(["fit", str(folder), "--target", "y", *budget, "--cluster", address]) == 2
        assert "no Dask scheduler answers" in capsys.readouterr().err


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
