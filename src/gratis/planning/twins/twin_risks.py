"""How large a twin is, and the risk that every setting reaches on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.rows import Rows
from gratis.models.linear import LinearModel
from gratis.models.logistic import SoftmaxModel
from gratis.planning.twins.problems import Member, draw_coefficients, draw_label_noise, draw_rows, thinned
from gratis.planning.twins.state_evolution import evolved_risks
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.stages.full_batch import descend_many

__all__ = ["TwinSize", "twin_risks"]

_ROW_TAIL = 0.4
# From here on the recursion and the mean of simulated twins agree within the spread of the latter
# (tests/planning/twins/test_state_evolution.py).
_RECORDS_A_DIRECTION = 10


@dataclass(frozen=True, slots=True)
class TwinSize:
    """A twin of d′ = d/shrunk columns and n′ rows at μ′ with n′μ′ = nμ/shrunk.

    Privacy noise adds ≍ κ²d²/(nμ)² to the risk, so d/(nμ) is kept; so is d/n where n/shrunk rows are affordable.
    """

    spectrum: NDArray[np.float64]
    n_records: int
    mu: float

    @classmethod
    def of(
        cls, spectrum: NDArray[np.float64], n_records: int, *, mu: float, columns: int = 100, rows: int = 2000
    ) -> TwinSize:
        """Shrink a problem to at most `columns` columns and `rows` rows."""
        n = check_count("n_records", n_records)
        kept = thinned(spectrum, columns)
        if kept.size == 0 or not np.isfinite(kept).all() or (kept < 0).any():
            raise GratisError("a spectrum needs at least one eigenvalue, all finite and non-negative")
        shrunk = spectrum.size / kept.size
        n_twin = max(1, min(round(n / shrunk), rows))
        return cls(kept, n_twin, check_positive("mu", mu) * n / (n_twin * shrunk))

    @property
    def needs_no_rows(self) -> bool:
        """Whether records are so many times the directions that the error's own recursion may replace them."""
        return self.n_records >= _RECORDS_A_DIRECTION * self.spectrum.size


def _descents(
    X: NDArray[np.float32],
    targets: NDArray[np.float32],
    mean: object,
    size: TwinSize,
    neighbouring: Neighbouring,
    steps: int,
    grid: NDArray[np.float64],
    copies: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    clips = np.repeat(grid[:, 0], copies)
    travels = np.repeat(grid[:, 1], copies)
    effective = max(1.0, float(size.spectrum.sum()))
    noise_std = np.float32(neighbouring.sensitivity_factor * math.sqrt(steps) / (size.n_records * size.mu))

    def shared(gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        # All settings of a member meet the same noise, so that chance favours none of them.
        drawn = rng.standard_normal((len(gradient), 1, copies, gradient.shape[2]), dtype=np.float32)
        apart = gradient.reshape(len(gradient), -1, copies, gradient.shape[2])
        return (apart + noise_std * drawn).reshape(gradient.shape)

    averaged, _ = descend_many(
        Rows.one_chunk(X, targets),
        mean,  # type: ignore[arg-type]
        steps=steps,
        outputs=targets.shape[2],
        clip_norms=(clips * math.sqrt(effective)).astype(np.float32),
        learning_rates=(travels / (clips * steps)).astype(np.float32)[None],
        add_noise=shared,
    )
    return averaged


def twin_risks(
    size: TwinSize,
    weights: NDArray[np.float64],
    neighbouring: Neighbouring,
    steps: int,
    grid: NDArray[np.float64],
    members: tuple[Member, ...],
    n_classes: int | None,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return risks for (settings, members), those of θ = 0, and variances of predictions, of one draw of the twin."""
    if n_classes is None:
        return _regression_risks(size, weights, neighbouring, steps, grid, members, rng)
    return _classification_risks(size, weights, neighbouring, steps, grid, members, n_classes, rng)


def _regression_risks(
    size: TwinSize,
    weights: NDArray[np.float64],
    neighbouring: Neighbouring,
    steps: int,
    grid: NDArray[np.float64],
    members: tuple[Member, ...],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return E(xᵀθ − xᵀθ*)² for (settings, members), the same for θ = 0, and E(xᵀθ)²."""
    spectrum, count = size.spectrum, len(members)
    if size.needs_no_rows:
        noise_std = neighbouring.sensitivity_factor * math.sqrt(steps) / (size.n_records * size.mu)
        return evolved_risks(spectrum, weights, size.n_records, noise_std, steps, grid, members, tail=_ROW_TAIL)
    X = draw_rows(spectrum, size.n_records, tail=_ROW_TAIL, rng=rng)
    truth = np.stack([draw_coefficients(spectrum, weights, m, rng=rng) for m in members], axis=1)
    noise = np.stack([draw_label_noise(m, size.n_records, rng=rng) for m in members], axis=1)
    targets = np.tile((X @ truth + noise).astype(np.float32), (1, len(grid)))[:, :, None]
    found = _descents(X.astype(np.float32), targets, LinearModel().mean, size, neighbouring, steps, grid, count, rng)
    reached = found[:, :, 0].astype(np.float64).reshape(spectrum.size, len(grid), count)
    null = np.array([m.signal_variance for m in members])
    risk, energy = (np.einsum("j,jsm->sm", spectrum, np.square(v)) for v in (reached - truth[:, None, :], reached))
    return risk, null, energy


def _classification_risks(
    size: TwinSize,
    weights: NDArray[np.float64],
    neighbouring: Neighbouring,
    steps: int,
    grid: NDArray[np.float64],
    members: tuple[Member, ...],
    n_classes: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the excess cross-entropy on fresh rows for (settings, members), for θ = 0, and no energies (zeros).

    At most three classes are simulated: more only add directions of the same kind, at k times the cost.
    """
    spectrum, count, k = size.spectrum, len(members), min(n_classes, 4)
    model = SoftmaxModel(k)
    draws = [[draw_coefficients(spectrum, weights, m, rng=rng) for _ in range(k)] for m in members]
    truth = np.transpose(np.array(draws), (2, 0, 1))

    def labelled(n: int) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float32]]:
        X = draw_rows(spectrum, n, tail=_ROW_TAIL, rng=rng)
        scores = (X @ truth.reshape(spectrum.size, -1)).reshape(n, count, k)
        labels = (scores + rng.gumbel(size=scores.shape)).argmax(axis=2)
        return X.astype(np.float32), scores, (labels[:, :, None] == np.arange(k)).astype(np.float32)

    X, _, onehot = labelled(size.n_records)
    found = _descents(X, np.tile(onehot, (1, len(grid), 1)), model.mean, size, neighbouring, steps, grid, count, rng)
    fresh, scores, answers = labelled(1000)
    reached = (fresh @ found.reshape(spectrum.size, -1)).reshape(1000, len(grid), count, k)
    best = model.loss(scores, answers).mean(axis=0)
    # One setting at a time: the array of all scores is the largest of the twin.
    risk = np.stack([model.loss(reached[:, s], answers).mean(axis=0) for s in range(len(grid))])
    return np.maximum(risk - best, 0.0), np.maximum(math.log(k) - best, 1e-3), np.zeros_like(risk)
