"""One private pass over the rows: every record is used once and only the last iterate is released (S2, Algorithm 1).

    θ_k = θ_{k−1} − (1/b)·Σ_batch η̄·clip_{C_k}(ℓ′(xᵀθ_{k−1}, y))·x + s_k·N(0, I),   η̄ = min(η_k, 2/(L‖x‖²))

The cap makes every step map non-expansive, which amplification by iteration needs. Where η·C is constant over
blocks of rows, the least noise (`accounting.least_noise`) is zero inside the blocks, so that only one normal vector
a block is drawn. Proofs: docs/proofs/amplification-by-iteration.md, docs/proofs/one-pass-rounding.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.accounting.iteration import inner_product_error, one_pass_radius, projection_interval
from gratis.mechanisms.noise import NoiseSource, snap
from gratis.numerics.outward import UNIT_ROUNDOFF
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration
from gratis.records.sequences import Runs
from gratis.stages import one_pass_kernels

__all__ = ["OnePassLoss", "OnePassTrainer", "OnePasses", "Rows", "train_one_pass"]

Array = NDArray[Any]

_BYTES_AT_ONCE = 2**22
_NORMALS_AT_ONCE = 2**16


class OnePassLoss(StrEnum):
    """Losses whose clipped steps are non-expansive under the cap. Softmax is not one of them.

    Why: docs/theory/one-pass.md, statement 2.

    SQUARED: ½(xᵀθ − y)², 1-smooth. LOGISTIC: log(1 + exp(−±xᵀθ)), ¼-smooth; labels > 0 count as +1, others as −1.
    """

    SQUARED = "squared"
    LOGISTIC = "logistic"


class Rows(Protocol):
    """What the trainer needs of a stream: public sizes and batches of rows in their stored order."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_features(self) -> int:
        """Number of columns of X."""

    def batches(self) -> Iterator[tuple[Array, Array]]:
        """Yield (X, y) batches."""


class OnePassTrainer:
    """Continue one declared pass, batch by batch; release the parameters once, at its end.

    **Guarantee**: the released vector is ρ-GDP under `event.neighbouring`, ρ = `amplification_by_iteration(event)`,
    for any rows in any fixed order: a row that is not finite counts as the identity map, the noise is added all the
    same, and nothing about an intermediate iterate leaves this object (no attribute, loss, copy or pickle).

    Parameters
    ----------
    event : OnePassIteration
        Step sizes, clip norms, noise and batch size, fixed before data is read. Its `rounding_inflation` > 1 sets
        the radius of the public ball on which θ is projected (`accounting.one_pass_rounding.one_pass_radius`).
    loss : OnePassLoss
    n_features : int
        Columns of X.
    noise : NoiseSource
    fit_intercept : bool
        Append a constant 1 to every row; the intercept is the last parameter.
    n_rows : int, optional
        Rows of the pass, if the last batch is not full; absent rows count as the identity map.

    >>> from gratis.records.sequences import Runs
    >>> event = OnePassIteration(step_sizes=Runs.constant(0.1, 4), clip_norms=Runs.constant(1.0, 4),
    ...     noise_stds=Runs.of([0, 0, 0, 0.4]), rounding_inflation=1.001, neighbouring="replace-one")
    >>> trainer = OnePassTrainer(event, OnePassLoss.SQUARED, n_features=2, noise=NoiseSource.insecure(1))
    >>> trainer.consume(np.eye(2), [1.0, 2.0])
    >>> trainer.consume(np.eye(2), [1.0, 2.0])
    >>> trainer.release().shape
    (2,)
    """

    def __init__(
        self,
        event: OnePassIteration,
        loss: OnePassLoss,
        *,
        n_features: int,
        noise: NoiseSource,
        fit_intercept: bool = False,
        n_rows: int | None = None,
    ) -> None:
        self.event = event
        self.loss = OnePassLoss(loss)
        self.n_features = check_count("n_features", n_features)
        self.n_rows = _declared_rows(event, n_rows)
        self.rows_seen = 0
        self._noise = noise
        size = self.n_features + bool(fit_intercept)
        self._steps, self._clips, self._stds = (
            _Lookup(name, getattr(event, name)) for name in ("step_sizes", "clip_norms", "noise_stds")
        )
        self._radius = one_pass_radius(event, size)
        self._interval = projection_interval(event.batch_size)
        self._keep = 1 - (2 * inner_product_error(size) + 8 * UNIT_ROUNDOFF)
        self._last_step = event.steps - 1
        self._noisy_left = self._stds.positive_entries(self._last_step)
        self._normals = np.empty((0, size))
        self._theta = np.zeros(size)
        self._pending = np.zeros(size)
        self._done = 0
        self._released = False

    def consume(self, X: ArrayLike, y: ArrayLike) -> None:
        """Use the next rows of the pass; a batch that would exceed the declared rows is refused whole."""
        rows, labels = self._checked(X, y)
        count = rows.shape[0]
        if self._released:
            raise GratisError("this pass has been released; a new pass needs a new trainer and a new budget")
        if self._done != self.rows_seen:
            raise GratisError("an earlier batch was interrupted; this pass cannot continue")
        if self.rows_seen + count > self.n_rows:
            raise GratisError(
                f"the pass was declared for {self.n_rows} rows and {self.rows_seen} were used; "
                f"a batch of {count} more would use rows beyond it"
            )
        # Counted before they are used: whatever happens below, no row can be fed a second time.
        self.rows_seen += count
        at_once = max(1, _BYTES_AT_ONCE // (8 * self.n_features))
        for start in range(0, count, at_once):
            self._advance(_compact(rows[start : start + at_once]), labels[start : start + at_once])

    def release(self) -> NDArray[np.float64]:
        """Return the parameters after the last noise, once, and forget them."""
        if self._released:
            raise GratisError("the parameters of this pass have been released already")
        if self._done != self.n_rows:
            raise GratisError(
                f"the pass was declared for {self.n_rows} rows and only {self.rows_seen} were used: "
                "an early release is not covered by the guarantee"
            )
        self._released = True
        self._theta += self._pending / self.event.batch_size  # of a last batch that is not full, else 0
        last = float(self._stds.at(self._last_step))
        parameters = self._noise.release(self._theta, last)
        if last == 0:  # the noise came earlier and nothing has moved since: the grid of that noise
            parameters = snap(parameters, next((s for s in reversed(self.event.noise_stds.values) if s > 0), 0.0))
        for array in (self._theta, self._pending, self._normals):
            array.fill(0.0)
        return parameters

    def _advance(self, X: Array, y: Array) -> None:
        labels = np.ascontiguousarray(y, dtype=np.float64)
        batch = self.event.batch_size
        first = self._done // batch
        positions = np.arange(first, (self._done + X.shape[0] - 1) // batch + 1)
        steps, clips, stds = (lookup.at(positions) for lookup in (self._steps, self._clips, self._stds))
        stds[positions == self._last_step] = 0.0  # the last noise belongs to the release
        row = 0
        while True:
            k = self._done // batch - first
            rows, used = one_pass_kernels.advance(
                self._theta, self._pending, X[row:], labels[row:], self._done, batch, steps[k:], clips[k:], stds[k:],
                self._normals, self._radius, self._interval, self._keep, self.loss is OnePassLoss.LOGISTIC,
            )  # fmt: skip
            self._normals = self._normals[used:]
            self._done += rows
            row += rows
            if row == X.shape[0]:
                return
            # Drawn in public portions, so that the result of one pass does not depend on how rows arrive.
            count = min(self._noisy_left, max(1, _NORMALS_AT_ONCE // self._theta.size))
            self._normals = self._noise.normal(1.0, (count, self._theta.size))
            self._noisy_left -= count

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        rows, labels = np.asarray(X), np.asarray(y)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise GratisError(f"X must have the shape (rows, {self.n_features}), got {rows.shape}")
        if labels.shape != rows.shape[:1]:
            raise GratisError(f"y must have one entry for each of the {rows.shape[0]} rows, got shape {labels.shape}")
        if rows.dtype.kind not in "biuf" or labels.dtype.kind not in "biuf":
            raise GratisError(f"X and y must be real numbers, got the types {rows.dtype} and {labels.dtype}")
        return rows, labels

    def __reduce__(self) -> NoReturn:
        raise GratisError("a pass cannot be copied or pickled: an intermediate iterate must not leave it")

    def __repr__(self) -> str:
        return f"OnePassTrainer({self.loss}, n_rows={self.n_rows}, n_features={self.n_features})"


class OnePasses:
    """One pass, or (given several events) a logistic pass for each class against the rest, over the same rows.

    **Guarantee**: the releases compose, μ = √Σρ_k²: account for `Composition(events)`. Labels of several passes are
    0 … K−1; any other label makes its row the identity map in all of them.
    """

    def __init__(
        self, events: Sequence[OnePassIteration], loss: OnePassLoss, *, n_features: int, noise: NoiseSource,
        fit_intercept: bool = False, n_rows: int | None = None,
    ) -> None:  # fmt: skip
        if len(events) > 1 and loss is not OnePassLoss.LOGISTIC:
            raise GratisError("several passes train classes against the rest: they need the logistic loss")
        self._trainers = [
            OnePassTrainer(event, loss, n_features=n_features, noise=noise, fit_intercept=fit_intercept, n_rows=n_rows)
            for event in events
        ]

    @property
    def rows_seen(self) -> int:
        """Rows used so far."""
        return self._trainers[0].rows_seen

    def consume(self, X: ArrayLike, y: ArrayLike) -> None:
        """Use the next rows in every pass."""
        labels, count = np.asarray(y), len(self._trainers)
        if any(trainer.rows_seen != self.rows_seen for trainer in self._trainers):
            raise GratisError("an earlier batch was interrupted; this pass cannot continue")
        if count == 1:
            self._trainers[0].consume(X, labels)
            return
        if labels.dtype.kind not in "biuf":
            raise GratisError(f"labels must be numbers from 0 to {count - 1}, got the type {labels.dtype}")
        known = np.isin(labels, np.arange(count))
        for label, trainer in enumerate(self._trainers):
            trainer.consume(X, np.where(known, labels == label, np.nan))

    def release(self) -> NDArray[np.float64]:
        """Return one row of parameters for each pass, once."""
        return np.stack([trainer.release() for trainer in self._trainers])


def train_one_pass(
    stream: Rows,
    events: OnePassIteration | Sequence[OnePassIteration],
    loss: OnePassLoss,
    *,
    noise: NoiseSource,
    fit_intercept: bool = False,
) -> NDArray[np.float64]:
    """Run the declared pass over a stream and return the released parameters (intercept last).

    Several events are passes of one class against the rest, and give one row of parameters each.

    **Guarantee**: that of `OnePassTrainer`, or of `OnePasses`. A stream with missing values must be validated before
    the budget is reserved, if at all; here such rows count as the identity map.
    """
    passes = OnePasses(
        (events,) if isinstance(events, OnePassIteration) else events, loss,
        n_features=stream.n_features, noise=noise, fit_intercept=fit_intercept, n_rows=stream.n_rows,
    )  # fmt: skip
    for X, y in stream.batches():
        passes.consume(X, y)
    released = passes.release()
    return np.asarray(released[0]) if isinstance(events, OnePassIteration) else released


class _Lookup:
    """Entries of a run-length sequence by position."""

    def __init__(self, name: str, runs: Runs) -> None:
        self._values, self._ends = np.array(runs.values), runs.ends()
        # The rounding bound was proved for this range; it is far wider than any use.
        if np.any((self._values != 0) & ~((self._values >= 1e-50) & (self._values <= 1e50))):
            raise GratisError(f"{name} must be 0 or lie between 1e-50 and 1e50")

    def at(self, positions: NDArray[np.int64] | int) -> NDArray[np.float64]:
        return self._values[np.searchsorted(self._ends, positions, side="right")]

    def positive_entries(self, before: int) -> int:
        """Return how many of the first `before` entries are positive."""
        counts = np.diff(np.minimum(self._ends, before), prepend=0)
        return int(counts[self._values > 0].sum())


def _declared_rows(event: OnePassIteration, n_rows: int | None) -> int:
    full = event.steps * event.batch_size
    rows = full if n_rows is None else check_count("n_rows", n_rows)
    if not full - event.batch_size < rows <= full:
        raise GratisError(
            f"{event.steps} steps of {event.batch_size} records make a pass of {full} rows, but {rows} were declared"
        )
    return rows


def _compact(X: Array) -> Array:
    """Return a row-major float32 or float64 view, or a copy of these few rows."""
    return np.ascontiguousarray(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float64)
