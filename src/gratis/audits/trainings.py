"""Trainings that a replay audit can run: whole estimators, a score on held-out rows, subsampled networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.audits.hostile import HostilePersons, HostileTables, Table
from gratis.audits.replay import Fitted, NoiseBook, ReplayAudit, Tap, Train, compare, record, replay
from gratis.estimators.scales import PublicScales
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.records.progress import counted
from gratis.records.settings import Descent

__all__ = [
    "audit_tables",
    "estimator_training",
    "held_out_training",
    "in_primal",
    "on_cluster",
    "replay_audit",
    "subsampled_training",
]

Array = NDArray[Any]
Source = Callable[[], NoiseSource]
# Small enough that a fit takes milliseconds; the guarantee does not depend on these sizes.
_FEWEST, _ROWS, _COLUMNS, _LARGEST = 10, 40, 5, {"n_features": 60, "width": 8, "depth": 2, "steps": 6}
_PER_RECORDING = 4
_NO_PERSONS = "groups need all rows in one memory: an audit of persons runs without a cluster"
_NOT_OF_THE_DATA = {"public": None, "ledger": None, "dataset": None, "noise_seed": None, "insecure_reproducible": False}


def estimator_training(
    create: Callable[[], Any],
    table: Table,
    fit: Callable[[Any, Table], Any] | None = None,
) -> Train:
    """A fit of a fresh estimator; published is every attribute that it has afterwards and had not before."""

    def train(tap: Tap) -> Fitted:
        model = create()
        before = set(vars(model))
        own = model._noise_source
        model._noise_source = lambda: tap(own())
        if fit is not None:
            fit(model, table)
        else:
            model.fit(table.X, table.y, **({} if table.groups is None else {"groups": table.groups}))
        kept = {name: value for name, value in vars(model).items() if name not in before | {"_noise_source"}}
        return Fitted(model.certificate_.event, kept)

    return train


def held_out_training(estimator: Any, budget: Budget, table: Table, source: Source = NoiseSource.secure) -> Train:
    """The score of a fitted estimator on held-out rows; targets are numbers or positions in its classes."""
    from gratis.estimators.evaluation import evaluate_privately, evaluation_event
    from gratis.estimators.release import Release

    def train(tap: Tap) -> Fitted:
        classes = len(estimator.classes_) if hasattr(estimator, "classes_") else None
        event = evaluation_event(len(table.y), budget, classes=classes)
        release = Release(event, budget, tap(source()))
        with release:
            estimates = evaluate_privately(estimator, table.X, table.y, release)
        return Fitted(release.certificate.event, (estimates, release.certificate))

    return train


def subsampled_training(sampling: Any, n_classes: int, table: Table, source: Source = NoiseSource.secure) -> Train:
    """DP-SGD of a small network (`PoissonSampling`, `train_poisson`); a missing label is −1, which adds nothing."""
    from gratis.models.mlp import build_mlp
    from gratis.stages.networks import train_poisson

    with np.errstate(over="ignore"):
        rows = table.X.astype(np.float32)
    labels = np.where(np.isfinite(table.y), table.y, -1).astype(np.int64)

    def train(tap: Tap) -> Fitted:
        module = build_mlp((rows.shape[1], 8, n_classes), seed=0)
        noise = tap(source())
        train_poisson(module, rows, labels, sampling=sampling, clip_norm=1.0, learning_rates=0.5, noise=noise)
        return Fitted(sampling.event, module)

    return train


def on_cluster(model: Any, table: Table) -> Any:
    """Fit rows that lie on the workers of the current Dask cluster, in several blocks."""
    import dask.array as da

    if table.groups is not None:
        raise GratisError(_NO_PERSONS)
    with _several_blocks(len(table.y)):
        return model.fit(da.from_array(table.X), da.from_array(table.y))


@contextmanager
def _several_blocks(n_rows: int) -> Iterator[None]:
    """Cut Dask rows into four to eight blocks: of the public length, 4096 rows and more, an audit's would all be one.

    Any power of two below a chunk makes leaves of the same tree. The length is one for the process: no other fit may
    run on a cluster meanwhile.
    """
    from unittest.mock import patch

    from gratis.rows import cluster

    length = 2 ** (max(n_rows // 4, 1).bit_length() - 1)
    with patch.object(cluster, "rows_per_block", lambda n_features: length):
        yield


def in_primal(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters for a descent on features in the primal, whose law is the dual's and whose values are visible."""
    return parameters | {"descent": replace(parameters.get("descent") or Descent(), engine="primal")}


def audit_tables(
    training: Callable[[Table], Train],
    tables: HostileTables | HostilePersons,
    relation: Neighbouring,
    *,
    pairs: int,
    rng: np.random.Generator,
    book: NoiseBook | None = None,
    per_recording: int = _PER_RECORDING,
) -> ReplayAudit:
    """Replay `pairs` hostile pairs. Each recording is replayed on several neighbours, in turn with and without null.

    Records exchanged under zero-out are two steps apart; there every second neighbour, where a record may be invalid,
    is the one that contributes nothing.
    """
    audit, book = ReplayAudit(), book or NoiseBook()
    removable = relation is Neighbouring.ZERO_OUT and tables.invalid
    done = 0
    with counted("audit", pairs) as advance:
        while done < pairs:
            table = tables.draw(rng)
            first_is_null = removable and rng.random() < 0.5
            if first_is_null:
                table = tables.without(table, rng)
            recording = record(training(table))
            audit.note(book.check(recording), table.name)
            for place in range(min(per_recording, pairs - done)):
                second_is_null = removable and not first_is_null and place == 0
                near = tables.without(table, rng) if second_is_null else tables.neighbour(table, rng)
                one_step = first_is_null or second_is_null or relation is Neighbouring.REPLACE_ONE
                found = compare(
                    recording, replay(training(near), recording), row=table.row, steps_apart=1 if one_step else 2
                )
                audit.add(found, f"{table.name} → {near.name.split('; ', 1)[1]} (row {table.row})")
                done += 1
                advance(1)
    return audit


def replay_audit(
    estimator: Any,
    n: int,
    d: int,
    task: str,
    classes: int | None = None,
    *,
    pairs: int = 100,
    seed: int = 0,
    persons: bool = False,
    cluster: bool = False,
) -> ReplayAudit:
    """Audit an estimator's options on synthetic rows of its shape, or of a smaller one where n and d are large.

    Parameters
    ----------
    estimator : a Gratis estimator, fitted or not; its parameters are copied, its rows are not needed.
    n, d : rows and columns that it is for.
    task : "regression" or "classification".
    classes : number of classes.
    pairs : hostile pairs; those whose values are not visible (dual engine) are replayed in the primal as well.
    seed : of the synthetic rows; noise is the estimator's own.
    persons : neighbours differ in a person with all rows, and n are persons; so where a certificate's unit is one.
    cluster : rows are given to the workers of the current Dask cluster, and only sums come back; not with persons.
    """
    if persons and cluster:
        raise GratisError(_NO_PERSONS)
    parameters = estimator.get_params(deep=False)
    images = parameters.get("features") == "scattering"
    rows = max(_FEWEST, min(check_count("n", n), _ROWS))
    columns = check_count("d", d) if images else min(check_count("d", d), _COLUMNS)
    labels = list(range(classes or 2)) if task == "classification" else None
    changed: dict[str, Any] = {name: value for name, value in _NOT_OF_THE_DATA.items() if name in parameters}
    changed |= {name: min(parameters[name], most) for name, most in _LARGEST.items() if name in parameters}
    if parameters.get("preprocessing") == "public":
        # Public scales are no function of the rows: the synthetic ones are on them.
        changed["preprocessing"] = "none"
        if persons:
            changed |= {"preprocessing": "public", "public": PublicScales(np.zeros(columns), np.ones(columns))}
    if labels is not None:
        changed["classes"] = labels
        rows = max(rows, 3 * len(labels))
    settings = parameters | changed
    if settings.get("inference"):
        # Below a public number of rows intervals are withheld, and what would pay for them is not run.
        from gratis.recipes.linear_inference import least_rows
        from gratis.recipes.logistic_inference import least_logistic_rows

        columns = min(columns, 2)
        least = least_rows if labels is None else least_logistic_rows
        rows = max(rows, least(columns, estimator._budget()))

    def training(table: Table, chosen: dict[str, Any] = settings) -> Train:
        return estimator_training(lambda: type(estimator)(**chosen), table, on_cluster if cluster else None)

    records = HostileTables(n=rows, d=columns, classes=labels, invalid=settings["on_invalid"] != "raise")
    tables = HostilePersons(records) if persons else records
    relation = Neighbouring.parse(settings["neighbouring"])
    rng, book = np.random.default_rng(seed), NoiseBook()
    record(training(tables.draw(rng)))  # imports and caches warm up: their warnings are nobody's secret
    audit = audit_tables(training, tables, relation, pairs=check_count("pairs", pairs), rng=rng, book=book)
    if audit.hidden:
        primal = partial(training, chosen=in_primal(settings))
        visible = audit_tables(primal, tables, relation, pairs=pairs, rng=rng, book=book)
        if not visible.pairs or visible.hidden:
            audit.note(["values are not visible in the primal either"], visible.refusal)
        audit.merge(visible)
    return audit
