"""What every private estimator does around its training: budget, noise source, ledger, certificate."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from gratis.accounting import issue_certificate
from gratis.ledger import Ledger
from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource, noise_source
from gratis.specs.budget import Budget
from gratis.specs.certificates import Certificate, Selection
from gratis.specs.errors import GratisError
from gratis.specs.events import Event
from gratis.specs.neighbouring import Neighbouring
from gratis.specs.plans import Plan

__all__ = ["PrivateFit", "Release", "as_numbers", "refuse_text"]


def refuse_text(**tables: Any) -> None:
    """Refuse text, complex numbers and an X that is no table, in our words: scikit-learn's would quote the entries."""
    for name, values in tables.items():
        if hasattr(values, "toarray"):
            continue  # sparse: validation refuses it without quoting
        try:
            array = np.asarray(values)
        except ValueError:
            raise GratisError(f"the rows of {name} must have equal lengths") from None
        if name == "X" and array.ndim != 2:
            raise GratisError(f"X must have one row for each record, got {array.ndim} dimensions. Reshape your data")
        if array.dtype.kind == "c":
            raise GratisError(f"Complex data not supported: {name} must hold real numbers")
        if array.dtype.kind in "OUS" and array.ndim:
            try:
                array.astype(np.float64)
            except ValueError:
                raise GratisError(f"{name} must hold numbers only, but some of its entries are text") from None
            except TypeError:
                pass  # no numbers at all: validation says so without quoting


def as_numbers(y: ArrayLike) -> ArrayLike:
    """Targets as numbers where they came as objects: scikit-learn overlooks a None there, as a number it is NaN."""
    array = np.asarray(y)
    try:
        return array.astype(np.float64) if array.dtype.kind == "O" and y is not None else y
    except TypeError:
        return y  # validation refuses it


class PrivateFit:
    """Mixin with the parameters that every private estimator shares.

    epsilon, delta : the budget, under `neighbouring` ("replace-one" or "zero-out").
    ledger, dataset : a ledger (the path of its file, or opened) and the name of the data set's budget in it; the run is
        reserved there before the data is touched.
    on_invalid : "raise" refuses missing features; "impute" puts the released or public centre of the column there.
    noise_seed : refused unless `insecure_reproducible=True`; the certificate then says that nothing is protected.
    """

    epsilon: float
    delta: float
    neighbouring: str
    ledger: str | Ledger | None
    dataset: str | None
    on_invalid: str
    noise_seed: int | None
    insecure_reproducible: bool

    def _budget(self) -> Budget:
        return Budget(epsilon=self.epsilon, delta=self.delta, neighbouring=Neighbouring.parse(self.neighbouring))

    def _noise_source(self) -> NoiseSource:
        return noise_source(self.noise_seed, insecure_reproducible=self.insecure_reproducible)

    def _ledger(self) -> Ledger | None:
        if (self.ledger is None) != (self.dataset is None):
            raise GratisError("give both ledger (a file) and dataset (the name of its budget), or neither")
        return self.ledger if self.ledger is None or isinstance(self.ledger, Ledger) else Ledger.open(self.ledger)

    def _validated(self, X: ArrayLike, y: ArrayLike, **choices: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Check rows and targets before anything is spent; with on_invalid="impute" features may be missing."""
        impute = self._choice("on_invalid", ("raise", "impute")) == "impute"
        refuse_text(X=X, **({"y": y} if choices.get("y_numeric") else {}))
        y = as_numbers(y) if choices.get("y_numeric") else y
        with np.errstate(all="ignore"):  # a warning about an extreme row would be about that row
            rows, target = validate_data(
                self, X, y, dtype=np.float64, ensure_min_samples=2, ensure_all_finite=not impute, **choices
            )
        return np.where(np.isfinite(rows), rows, np.nan) if impute else rows, np.asarray(target)

    def _filling(self, scaler: Standardiser) -> Standardiser:
        """The map, with the centre in the place of missing features if that was asked for."""
        return replace(scaler, impute=self.on_invalid == "impute")

    def _choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = getattr(self, name)
        if value not in allowed:
            raise GratisError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
        return str(value)


class Release(AbstractContextManager["Release"]):
    """From reservation to certificate: spent on entry, even if the process dies inside; certified on success.

    >>> from gratis.specs.events import GaussianRelease
    >>> event = GaussianRelease(sensitivity=1.0, noise_std=10.0, neighbouring="replace-one")
    >>> with Release(event, Budget(mu=0.5), NoiseSource.secure()) as release:
    ...     noisy = release.noise.release([0.0], event.noise_std)
    >>> release.certificate.guarantee["within_budget"]
    True
    """

    def __init__(
        self,
        event: Event,
        budget: Budget,
        noise: NoiseSource,
        *,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        purpose: str = "training",
        plan: Plan | None = None,
        selection: Selection = Selection.NONE,
        assumptions: tuple[str, ...] = (),
    ) -> None:
        self.event, self.budget, self.noise = event, budget, noise
        self._ledger, self._dataset, self._purpose = ledger, dataset, purpose
        self._plan, self._selection, self._assumptions = plan, selection, assumptions
        self._reservation: Any = None
        self._certificate: Certificate | None = None

    @property
    def certificate(self) -> Certificate:
        """The certificate, once the block has ended well."""
        if self._certificate is None:
            raise GratisError("there is no certificate before the training has ended")
        return self._certificate

    def __enter__(self) -> Release:
        if self._ledger is not None and self._dataset is not None:
            self._reservation = self._ledger.reserve(self._dataset, self.event, purpose=self._purpose)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return  # what was reserved stays spent
        if self._ledger is not None and self._reservation is not None:
            self._reservation = self._ledger.commit(self._reservation.id, self.event)
        self._certificate = issue_certificate(
            event=self.event,
            budget=self.budget,
            selection=self._selection,
            randomness=self.noise.describe(),
            assumptions=self._assumptions,
            plan=None if self._plan is None else self._plan.to_json(),
            ledger_entry=None if self._reservation is None else self._reservation.to_json(),
        )
