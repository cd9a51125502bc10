"""Six sabotages of real estimators, each caught by replay on a pair that raises nothing when the program is honest."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from gratis import DPLinearRegression, DPLogisticRegression, DPRandomFeaturesRegressor
from gratis.audits.hostile import Table
from gratis.audits.replay import NoiseBook, compare, record, replay
from gratis.audits.trainings import estimator_training, in_primal, subsampled_training
from gratis.estimators import classification
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.private.session import Session
from gratis.records.events import PoissonSubsampledGaussian
from gratis.stages.feature_descent import Engine
from gratis.stages.poisson_sampling import PoissonSampling

N, D = 24, 3
BUDGET = {"epsilon": 4.0, "delta": 1e-3, "preprocessing": "none"}


def pair(target=1e6, other=-1e6, *, record_=(1.0, 0.0, 0.0), other_record=None, labels=False, row=0):
    """Two tables that differ in one record."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = (X[:, 0] > 0).astype(float) if labels else X[:, 0].copy()
    made = []
    for features, answer in ((record_, target), (record_ if other_record is None else other_record, other)):
        rows, targets = X.copy(), y.copy()
        rows[row], targets[row] = features, answer
        made.append(Table("by hand", rows, targets, row))
    return made


def replayed(create, tables):
    recording = record(estimator_training(create, tables[0]))
    assert recording.fitted is not None, recording.error
    return compare(recording, replay(estimator_training(create, tables[1]), recording), row=tables[0].row)


linear = partial(DPLinearRegression, **BUDGET)
one_pass = partial(DPLinearRegression, **BUDGET, algorithm="one-pass")
logistic = partial(DPLogisticRegression, **BUDGET, classes=[0, 1], on_invalid="zero")
features = partial(DPRandomFeaturesRegressor, **BUDGET, n_features=200, features="relu")


def test_honest_programs_raise_nothing_and_come_close():
    found = replayed(linear, pair())
    assert not found.alarm, found
    assert found.ratio > 0.8  # the same release of second moments on both sides is all that is missing
    assert not replayed(one_pass, pair()).alarm


def descend_with(monkeypatch, changed):
    """Let gradients, and nothing else, get another noise source than the session's."""
    whole = Session.gradient

    def gradient(self, *given, **named):
        own, self._noise = self._noise, changed(self._noise) if self._noise is not None else None
        try:
            return whole(self, *given, **named)
        finally:
            self._noise = own

    monkeypatch.setattr(Session, "gradient", gradient)


def test_noise_halved(monkeypatch):
    class Half(NoiseSource):
        """Passes on half of the deviation that it is asked for."""

        def __init__(self, source):
            self.source = source

        def release(self, values, std):
            return self.source.release(values, std / 2)

    descend_with(monkeypatch, Half)
    found = replayed(linear, pair())
    assert found.ratio > 1.6
    assert any("certified" in what for what in found.differences)


def test_noise_halved_in_the_source_itself(monkeypatch):
    class Half(NoiseSource):
        def normal(self, std, shape):
            return super().normal(std / 2, shape)

    for create in (linear, one_pass):
        honest, book = NoiseBook(), NoiseBook()
        trainings = [estimator_training(create, pair()[0])] * 12  # a pass draws few numbers: the book adds them up
        assert not [what for training in trainings for what in honest.check(record(training))]
        with monkeypatch.context() as patch:
            patch.setattr(create.func, "_noise_source", lambda self: Half.secure())
            assert any("smaller" in what for training in trainings for what in book.check(record(training)))


def test_clipping_left_out(monkeypatch):
    def unclipped(X, norms, factors, clip_norm, each=1):
        return X.T @ factors / clip_norm

    monkeypatch.setattr("gratis.private.session.clipped_outer_sum", unclipped)
    assert replayed(linear, pair()).ratio > 100


def test_clipping_left_out_of_a_pass(monkeypatch):
    from gratis.stages import one_pass_kernels

    def unclipped(theta, pending, X, y, first, batch, steps, clips, *rest):
        return advance(theta, pending, X, y, first, batch, steps, np.full_like(clips, 1e9), *rest)

    advance = one_pass_kernels.advance
    monkeypatch.setattr(one_pass_kernels, "advance", unclipped)
    assert replayed(one_pass, pair()).ratio > 100


def test_a_label_check_that_raises(monkeypatch):
    tables = pair(1.0, 7.0, labels=True)
    assert not replayed(logistic, tables).alarm

    def checked(labels, classes):
        if not np.isin(labels, classes).all():
            raise ValueError("labels outside the classes")
        return whole(labels, classes)

    whole = classification.encoded
    monkeypatch.setattr(classification, "encoded", checked)
    assert any("exception" in what for what in replayed(logistic, tables).differences)


def test_an_engine_chosen_by_the_data(monkeypatch):
    from gratis.recipes import random_features

    tables = pair(1.0, 1.0, other_record=(0.5, 0.0, 0.0))
    honest = replayed(features, tables)
    assert not honest.alarm, honest
    assert honest.hidden > 0
    whole = random_features.descend_rows

    def chosen(feature_map, rows, *rest, **named):
        engine = Engine.PRIMAL if np.abs(rows.arrays()[0][0]).max() < 0.75 else Engine.DUAL
        return whole(feature_map, rows, *rest, **named | {"engine": engine})

    monkeypatch.setattr(random_features, "descend_rows", chosen)
    assert any("another call" in what for what in replayed(features, tables).differences)


def test_the_primal_shows_what_the_dual_hides():
    tables = pair(1e3, -1e3)
    assert replayed(features, tables).ratio == 0
    found = replayed(partial(features, **in_primal({})), tables)
    assert found.hidden == 0
    assert 0.8 < found.ratio <= 1 + 1e-6


def test_rows_sorted_by_content(monkeypatch):
    """Sorted rows meet other coins: with the record at the other end, every batch holds other records."""
    pytest.importorskip("torch")
    from gratis.stages import networks

    event = PoissonSubsampledGaussian(sampling_rate=0.5, noise_multiplier=1.0, steps=4, neighbouring="replace-one")
    tables = pair(1.0, 1.0, record_=(-9.0, 0.0, 0.0), other_record=(9.0, 0.0, 0.0), labels=True)

    def found():
        trainings = [subsampled_training(PoissonSampling(N, event), 2, table) for table in tables]
        recording = record(trainings[0])
        return compare(recording, replay(trainings[1], recording), row=0)

    assert not found().alarm, found()
    whole = networks.train_poisson

    def in_order(module, X, y, **named):
        order = np.argsort(X[:, 0])
        return whole(module, X[order], y[order], **named)

    monkeypatch.setattr(networks, "train_poisson", in_order)
    assert any(found().ratio > 1.1 for _ in range(8))  # coins are fresh: a few of four batches may happen to agree


def test_rows_of_a_pass_in_an_order_that_depends_on_one_record(monkeypatch):
    tables = pair(0.0, 0.0, record_=(-1e6, 0.0, 0.0), other_record=(1e6, 0.0, 0.0))
    assert not replayed(one_pass, tables).alarm

    class Sorted(Rows):
        @classmethod
        def held(cls, X, y):
            order = np.argsort(np.abs(X[:, 0] - X[:, 0].mean()))
            return Rows.held(X[order], 1e6 * y[order])

    monkeypatch.setattr("gratis.estimators.record_reader.Rows", Sorted)
    assert replayed(one_pass, tables).ratio > 1 + 1e-6


def test_a_seed_used_for_two_fits(monkeypatch):
    book = NoiseBook()
    for table in pair():
        assert not book.check(record(estimator_training(linear, table)))
    monkeypatch.setattr(DPLinearRegression, "_noise_source", lambda self: NoiseSource.insecure(7))
    found = [book.check(record(estimator_training(linear, table))) for table in pair()]
    assert not found[0]
    assert any("same noise" in what for what in found[1])


def test_a_seed_used_for_two_releases_of_one_fit(monkeypatch):
    class Stuck(NoiseSource):
        def normal(self, std, shape):
            return NoiseSource.insecure(7).normal(std, shape)

    monkeypatch.setattr(DPLinearRegression, "_noise_source", lambda self: Stuck.secure())
    found = NoiseBook().check(record(estimator_training(linear, pair()[0])))
    assert any("same noise" in what for what in found)


def test_a_trainer_with_a_noise_source_of_its_own(monkeypatch):
    """Noise that does not pass through the estimator's source cannot be shown to be there."""
    descend_with(monkeypatch, lambda noise: NoiseSource.insecure(7))
    found = replayed(linear, pair())
    assert any("did not pass" in what for what in found.differences)
    assert any("published" in what for what in found.differences)


@pytest.mark.parametrize("leak", ["attribute", "warning", "steps"])
def test_what_leaks_beside_the_releases(monkeypatch, leak):
    import warnings

    whole = DPLinearRegression.fit

    def leaking(self, X, y):
        if leak == "warning" and y[0] > 0:
            warnings.warn("a large target", stacklevel=1)
        whole(self, X, y)
        if leak == "attribute":
            self.largest_target_ = float(y.max())
        if leak == "steps" and y[0] > 0:
            self._noise_source().normal(1.0, 1)
        return self

    monkeypatch.setattr(DPLinearRegression, "fit", leaking)
    words = {"attribute": "largest_target_", "warning": "a large target", "steps": "noise source"}[leak]
    assert any(words in what for what in replayed(linear, pair()).differences)
