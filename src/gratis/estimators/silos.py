"""Linear regression over silos: each adds its own noise to its own sums and writes one file; nobody sees exact sums."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.accounting import calibrate_mu, calibrate_noise_std
from gratis.accounting.silos import share_event, silo_guarantees
from gratis.estimators.private_fit import Release
from gratis.estimators.scales import PublicScales
from gratis.estimators.values import floats
from gratis.ledger import Ledger
from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource, noise_source
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import clipped_outer_products
from gratis.numerics.rounding import rounding_inflation
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import GaussianRelease
from gratis.records.guarantees import GDPGuarantee
from gratis.records.neighbouring import Neighbouring
from gratis.records.record import Record
from gratis.records.strict_json import read_json

__all__ = ["SiloModel", "SiloPlan", "SiloShare", "combine_shares", "make_share"]

# Squared lengths of standardised rows are D on average; a row is clipped at twice that, which few are longer than.
_ROOM = 2.0
_MOST_COLUMNS = 300
_SHRINKAGE = 0.5  # of the spectral norm of the noise, as in `release_second_moments`


class _File(Record):
    """A record that travels as a JSON file."""

    __slots__ = ()

    def write(self, path: str | Path) -> None:
        """Write as JSON."""
        Path(path).write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file that `write` made."""
        return cls.from_json(read_json(path, "the file"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiloPlan(_File):
    """What all silos agree on before any of them looks at its rows.

    Parameters
    ----------
    rows : rows of each silo, public.
    columns : features.
    budget : Budget
        What every record of an honest silo gets, against whoever sees what `shares_are_seen` says.
    honest : int
        k: silos that add their noise and keep it to themselves. Does not matter where shares are seen. A silo that
        reads the model knows its own noise: against it, count the others only.
    shares_are_seen : bool
        Whether someone (a coordinator) may see single shares. False only with secure aggregation of your own.
    means, scales, target_mean, target_scale : public scales of the columns, as in `PublicScales`.

    >>> plan = SiloPlan(rows=(50, 70), columns=1, budget=Budget(mu=1.0), honest=2, means=(0.0,), scales=(1.0,))
    >>> [round(found.mu, 6) for found in plan.guarantees]
    [1.0, 0.707107]
    """

    rows: tuple[int, ...]
    columns: int
    budget: Budget
    honest: int
    means: tuple[float, ...]
    scales: tuple[float, ...]
    target_mean: float = 0.0
    target_scale: float = 1.0
    shares_are_seen: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(check_count("rows", n) for n in self.rows))
        if not 1 <= check_count("columns", self.columns) <= _MOST_COLUMNS:
            raise GratisError(f"silos exchange all products of columns: at most {_MOST_COLUMNS} columns")
        if not 1 <= check_count("honest", self.honest) <= len(self.rows):
            raise GratisError("honest must be a number of silos, at most all of them")
        self.public.features(self.columns)  # refuses scales that are none

    @property
    def public(self) -> PublicScales:
        """The scales as estimators take them."""
        return PublicScales(self.means, self.scales, self.target_mean, self.target_scale)

    @property
    def event(self) -> GaussianRelease:
        """Σ zzᵀ over all silos, z = (features, 1, target) clipped to ‖z‖² ≤ 2D, as one curator would release it.

        Sensitivity as in `second_moment_event`: R² under zero-out, √2·R² under replace-one. Sums of silos are parts of
        one sum, so that its rounding inflation covers each of them.
        """
        size, relation = self.columns + 2, self.budget.neighbouring
        factor = 1.0 if relation is Neighbouring.ZERO_OUT else math.sqrt(2.0)
        inflation = rounding_inflation(sum(self.rows), 2 * size + 20, sensitivity=factor)
        sensitivity = factor * _ROOM * size * inflation
        std = calibrate_noise_std(mu=calibrate_mu(self.budget), sensitivity=sensitivity)
        return GaussianRelease(
            sensitivity=sensitivity, noise_std=std, neighbouring=relation, label="second moments over silos"
        )

    @property
    def share(self) -> GaussianRelease:
        """What one silo sends."""
        return share_event(self.event, honest=self.honest, shares_are_seen=self.shares_are_seen)

    @property
    def guarantees(self) -> tuple[GDPGuarantee, GDPGuarantee]:
        """Against who sees every share, and against who sees the total alone."""
        return silo_guarantees(self.share, honest=self.honest)

    @property
    def digest(self) -> str:
        """The plan's SHA-256: a share says which plan it is of."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SiloShare(_File):
    """One silo's noisy sums, a (D, D) matrix row by row."""

    plan: str
    silo: int
    values: tuple[float, ...]


def make_share(
    plan: SiloPlan,
    silo: int,
    X: ArrayLike,
    y: ArrayLike,
    path: str | Path,
    *,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    noise_seed: int | None = None,
    insecure_reproducible: bool = False,
) -> Certificate:
    """At silo number `silo` (from 0): write the noisy sums of its rows to `path`, and return its certificate.

    **Guarantee**: the file satisfies the plan's budget under its relation against whoever sees it, if shares are seen;
    else the total of all shares does, if at least `plan.honest` silos did the same and nobody saw a single share (the
    certificate says so). A record with a value that is no finite number contributes nothing. Each call is a release
    of its own and pays for itself.
    """
    if not 0 <= check_count("silo", silo, minimum=0) < len(plan.rows):
        raise GratisError(f"the plan is for silos 0 to {len(plan.rows) - 1}")
    if (ledger is None) != (dataset is None):
        raise GratisError("ledger and dataset belong together: the ledger, and the name of the data set in it")
    records, targets = floats("X", X), floats("y", y)
    if records.shape != (plan.rows[silo], plan.columns) or targets.shape != (plan.rows[silo],):
        raise GratisError(f"silo {silo} was planned for {plan.rows[silo]} rows of {plan.columns} columns")
    if not Path(path).parent.is_dir() or Path(path).is_dir():
        raise GratisError("the share cannot be written there: no such folder; nothing was spent")
    noise = noise_source(noise_seed, insecure_reproducible=insecure_reproducible)
    trusted = () if plan.shares_are_seen else ("honest-silos",)
    with Release(
        plan.event, plan.budget, noise, ledger=ledger, dataset=dataset, purpose="share of a sum", assumptions=trusted
    ) as release:
        values = release_share(plan, records, targets, noise=noise)
        SiloShare(plan=plan.digest, silo=silo, values=tuple(values.ravel().tolist())).write(path)
    return release.certificate


def release_share(
    plan: SiloPlan, X: NDArray[np.float64], y: NDArray[np.float64], *, noise: NoiseSource
) -> NDArray[np.float64]:
    """Return Σ zzᵀ over one silo's rows plus its share of the noise."""
    features, target = plan.public.features(plan.columns), plan.public.target()
    rows = Rows.held(X, y)

    def moments(X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        z = np.column_stack([features.transform(X), np.ones(len(X)), target.transform(y[:, None])])
        return _ROOM * clipped_outer_products(z / math.sqrt(_ROOM))

    with np.errstate(all="ignore"):
        total = rows.total(moments)
    return noise.release(total, plan.share.noise_std)


@dataclass(frozen=True, slots=True)
class SiloModel:
    """ŷ = xᵀ`coef_` + `intercept_` in the units of the columns, x winsorised as it was when the sums were made."""

    coef_: NDArray[np.float64]
    intercept_: float
    features: Standardiser

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict targets; a missing feature counts as the centre of its column."""
        moved = replace(self.features, impute=True).transform(np.asarray(X, dtype=np.float64))
        return np.asarray(self.features.inverse(moved) @ self.coef_ + self.intercept_)


def combine_shares(
    plan: SiloPlan, shares: Iterable[SiloShare], *, inside_secure_aggregation: bool = False
) -> SiloModel:
    """At the coordinator: add the shares and solve for the coefficients. Post-processing of what the silos sent.

    Every silo's share is needed once; one that is missing, repeated, of another plan or not finite is refused. Where
    the plan promises that nobody sees single shares, whoever calls this does: it must be the secure aggregation itself,
    and say so.
    """
    if not plan.shares_are_seen and not inside_secure_aggregation:
        raise GratisError(
            "this plan protects the total alone, and whoever combines shares sees each of them: plan with "
            "shares_are_seen=True, or call this inside your secure aggregation"
        )
    size = plan.columns + 2
    total, missing = np.zeros((size, size)), set(range(len(plan.rows)))
    for share in shares:
        if share.plan != plan.digest:
            raise GratisError(f"the share of silo {share.silo} is of another plan")
        if share.silo not in missing:
            raise GratisError(f"there are two shares of silo {share.silo}, or the plan has no such silo")
        values = np.array(share.values)
        if values.size != size * size or not np.isfinite(values).all():
            raise GratisError(f"the share of silo {share.silo} is no matrix of {size} × {size} finite numbers")
        total += values.reshape(size, size)
        missing.remove(share.silo)
    if missing:
        raise GratisError(f"silo {min(missing)} has not answered")
    n = sum(plan.rows)
    moments = (total + total.T) / (2 * n)
    std = plan.share.noise_std * math.sqrt(len(plan.rows)) / n
    eigenvalues, vectors = np.linalg.eigh(moments[:-1, :-1])
    ridge = _SHRINKAGE * std * math.sqrt(2 * size) + 1e-9
    solved = vectors @ ((vectors.T @ moments[:-1, -1]) / (np.maximum(eigenvalues, 0.0) + ridge))
    features, target = plan.public.features(plan.columns), plan.public.target()
    slopes = solved[:-1] / features.scale * target.scale[0]
    intercept = float(target.centre[0] + solved[-1] * target.scale[0] - slopes @ features.centre)
    return SiloModel(slopes, intercept, features)
