"""Public tables for S2's figures, and many private passes over one table at once.

Scales come from rows of a disjoint public subset; columns that are constant there are dropped. Nobody's privacy is
at stake in these tables: the passes run the mechanism with a fast generator, to measure what a private run would get.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from gratis.accounting import least_noise
from gratis.planning.assumptions import LinearFacts, spectrum_from_sample
from gratis.planning.one_pass.prediction import predict_final_risks
from gratis.planning.one_pass.schedule_optimisation import Family, FamilyKind, optimise_schedule
from gratis.planning.one_pass.schedule_regret import optimise_worst_regret
from gratis.planning.one_pass.schedules import Schedule
from gratis.planning.one_pass.spectra import Spectrum
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis_papers.fast_normals import fill_normals

__all__ = ["Task", "data_is_absent", "load_task", "run_passes"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Task:
    """Standardised rows to train on, to choose on and to test on, and what was done to them."""

    name: str
    X: Array
    y: Array
    X_validation: Array
    y_validation: Array
    X_test: Array
    y_test: Array
    public_rows: Array
    note: str

    def spectrum(self) -> Spectrum:
        """Eigenvalues of the public rows' second moments."""
        return spectrum_from_sample(self.public_rows)

    def planned(self, rho: float, name: str) -> Schedule:
        """What Gratis plans in a family from n, d and the public rows' spectrum: least worst regret over assumed R²."""
        n, d = self.X.shape
        # The budget only names the relation: ρ itself is given.
        budget = Budget(epsilon=1.0, delta=1e-6)
        facts = LinearFacts(n_records=n, n_features=d, budget=budget, spectrum=self.spectrum())
        problems, family = facts.problems(mu=rho), Family.parse(name)
        if family.kind is not FamilyKind.POLYNOMIAL:
            return optimise_worst_regret(problems, family).schedule
        best = [optimise_schedule(problem, family) for problem in problems]
        risks = predict_final_risks(problems, [one.schedule for one in best])
        regrets = risks - np.array([one.excess_risk for one in best])[:, None]
        return best[int(np.argmin(regrets.max(axis=0)))].schedule

    def losses(self, parameters: Array, *, test: bool = True) -> Array:
        """Mean squared error of each row of parameters; predicting the mean has about 1."""
        X, y = (self.X_test, self.y_test) if test else (self.X_validation, self.y_validation)
        return np.square(X @ parameters.T - y[:, None]).mean(axis=0)


def data_is_absent() -> bool:
    """Whether smaller data must do: GRATIS_DATA is not set."""
    return not os.environ.get("GRATIS_DATA")


@cache
def load_task(name: str, *, shipped: bool) -> Task:
    """Return "digits" (1 against 7) or "housing": MNIST and California, or those that come with scikit-learn."""
    if name == "digits":
        X, y = _shipped_digits() if shipped else _mnist()
        source = "scikit-learn's digits (GRATIS_DATA is not set)" if shipped else "MNIST"
        label = "1 against 7"
    else:
        X, y = _shipped_diabetes() if shipped else _california()
        source = "scikit-learn's diabetes (GRATIS_DATA is not set)" if shipped else "California housing"
        label = "regression"
    return _standardised(f"{source.split(' (')[0]}, {label}", X, y, source)


def _standardised(name: str, X: Array, y: Array, source: str) -> Task:
    order = np.random.default_rng(0).permutation(len(X))
    public, validation, test = len(X) // 8, len(X) // 10, len(X) // 10
    parts = np.split(order, np.cumsum([public, validation, test]))
    reference = X[parts[0]]
    spread = reference.std(axis=0)
    kept = spread > 0
    centre, spread = reference.mean(axis=0)[kept], spread[kept]
    mean, deviation = y[parts[0]].mean(), y[parts[0]].std()
    scaled = [((X[part][:, kept] - centre) / spread, (y[part] - mean) / deviation) for part in parts]
    note = (
        f"{source}: {len(parts[3])} rows to train, {int(kept.sum())} columns; scales from {public} public rows, "
        f"{validation} rows for choosing and {test} for testing, all disjoint"
    )
    (known, _), (X_val, y_val), (X_test, y_test), (X_train, y_train) = scaled
    return Task(name, X_train, y_train, X_val, y_val, X_test, y_test, known, note)


def _mnist() -> tuple[Array, Array]:
    from gratis_papers.images import load_mnist

    images = load_mnist(standardise=False)
    X = np.concatenate([images.x_train, images.x_test]).reshape(70_000, -1)
    y = np.concatenate([images.y_train, images.y_test])
    chosen = (y == 1) | (y == 7)
    return X[chosen] / 255.0, np.where(y[chosen] == 1, -1.0, 1.0)


def _california() -> tuple[Array, Array]:
    given = os.environ.get("GRATIS_DATA")
    path = Path(given) / "california" / "california_housing.csv.gz" if given else None
    if path is not None and path.is_file():
        table = np.loadtxt(path, delimiter=",", skiprows=1)
        return table[:, :-1], table[:, -1]
    from sklearn.datasets import fetch_california_housing

    try:
        X, y = fetch_california_housing(return_X_y=True)
    except OSError as error:
        raise GratisError(f"California housing is not in GRATIS_DATA and could not be downloaded ({error})") from None
    return np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)


def _shipped_digits() -> tuple[Array, Array]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    chosen = (y == 1) | (y == 7)
    return X[chosen], np.where(y[chosen] == 1, -1.0, 1.0)


def _shipped_diabetes() -> tuple[Array, Array]:
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return np.asarray(X), np.asarray(y, dtype=np.float64)


def run_passes(
    X: Array,
    y: Array,
    *,
    shapes: Array,
    which: NDArray[np.int64],
    rates: Array,
    clip_levels: Array,
    rho: float,
    rng: np.random.Generator,
) -> Array:
    """Return the last iterates (settings, d) of S2's Algorithm 1, with its least noise, for each setting.

        η_k = rate·shape(k)/n capped at 2/‖x_k‖²,   C = clip_level·√d,   replace-one.

    All settings see the same rows in the same random order and the same directions of noise, so that their
    differences are not blurred by either.

    Parameters
    ----------
    shapes: (families, n), non-increasing along the pass.
    which: family of each setting.
    rates, clip_levels: of each setting.
    rho: GDP parameter of each release; infinite runs without noise.
    rng: public randomness for order and noise.
    """
    order = rng.permutation(len(X))
    n, d = X.shape
    if shapes.shape[1] != n:
        raise GratisError(f"shapes must have one column for each of {n} rows, got {shapes.shape[1]}")
    relation = Neighbouring.REPLACE_ONE
    # The least noise is proportional to a and to 1/ρ, so that one sequence a family is enough.
    unit = np.stack([least_noise(shape, rho=1.0, neighbouring=relation) for shape in shapes])
    # Single precision: the loop is bound by memory, and what it measures is far coarser.
    thetas = np.zeros((len(rates), d), dtype=np.float32)
    _passes(
        X[order].astype(np.float32), y[order], shapes / n, unit / n / rho, which, np.asarray(rates, dtype=np.float64),
        np.asarray(clip_levels) * math.sqrt(d), rng.integers(2**64, dtype=np.uint64), thetas,
    )  # fmt: skip
    return thetas.astype(np.float64)


_FAST: Any = {"contract", "reassoc", "nsz", "arcp"}


@numba.njit(cache=True, fastmath=_FAST)
def _passes(
    X: NDArray[np.float32], y: Array, shapes: Array, noise: Array, which: NDArray[np.int64], rates: Array,
    clip_norms: Array, seed: np.uint64, thetas: NDArray[np.float32],
) -> None:  # fmt: skip
    n, d = X.shape
    half, counter = (d + 1) // 2, seed
    high, low, draw = np.empty(half, np.int32), np.empty(half, np.int32), np.empty(2 * half, np.float32)
    for k in range(n):
        row = X[k]
        square = 0.0
        for i in range(d):
            square += np.float64(row[i]) * np.float64(row[i])
        square = max(square, 1e-30)
        if np.any(noise[:, k] > 0):
            counter = fill_normals(counter, high, low, draw)
        for s in range(thetas.shape[0]):
            theta, family = thetas[s], which[s]
            product = np.float32(0)
            for i in range(d):
                product += row[i] * theta[i]
            limit = clip_norms[s] / math.sqrt(square)
            clipped = min(max(np.float64(product) - y[k], -limit), limit)
            weight = np.float32(min(rates[s] * shapes[family, k], 2 / square) * clipped)
            std = np.float32(rates[s] * clip_norms[s] * noise[family, k])
            if std > 0:
                for i in range(d):
                    theta[i] += std * draw[i] - weight * row[i]
            else:
                for i in range(d):
                    theta[i] -= weight * row[i]
