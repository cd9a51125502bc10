"""Guarantees: what is proved, as data. Each carries the relation under which it holds; all numbers are upper bounds.

Conversions between them are accounting and live there (`accounting.epsilon_upper_bound`, …).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gratis.records.checks import check_delta, check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import Event
from gratis.records.neighbouring import Neighbouring
from gratis.records.record import Record

__all__ = [
    "ApproximateDPGuarantee",
    "GDPGuarantee",
    "GDPWithFailureGuarantee",
    "Guarantee",
    "KLGuarantee",
    "PLDGuarantee",
    "RenyiGuarantee",
    "ZCDPGuarantee",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guarantee(Record):
    neighbouring: Neighbouring

    def _check_common(self) -> None:
        object.__setattr__(self, "neighbouring", Neighbouring.parse(self.neighbouring))


@dataclass(frozen=True, slots=True, kw_only=True)
class GDPGuarantee(_Guarantee):
    """μ-GDP: telling neighbours apart is at least as hard as telling N(0,1) from N(μ,1). μ = ∞ protects nothing."""

    kind: ClassVar[str] = "gdp"
    mu: float

    def __post_init__(self) -> None:
        self._check_common()
        object.__setattr__(self, "mu", check_non_negative("mu", self.mu, allow_infinite=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class GDPWithFailureGuarantee(_Guarantee):
    """μ-GDP composed with (0, failure)-DP: with probability `failure` everything may be told."""

    kind: ClassVar[str] = "gdp-with-failure"
    mu: float
    failure: float

    def __post_init__(self) -> None:
        self._check_common()
        object.__setattr__(self, "mu", check_non_negative("mu", self.mu, allow_infinite=True))
        failure = check_non_negative("failure", self.failure)
        if failure > 1:
            raise GratisError(f"failure must be at most 1, got {failure}")
        object.__setattr__(self, "failure", failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZCDPGuarantee(_Guarantee):
    """ρ-zCDP: Rényi divergence of every order α > 1 is at most ρα."""

    kind: ClassVar[str] = "zcdp"
    rho: float

    def __post_init__(self) -> None:
        self._check_common()
        object.__setattr__(self, "rho", check_non_negative("rho", self.rho, allow_infinite=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class RenyiGuarantee(_Guarantee):
    """(α, ε)-Rényi DP at one order α > 1."""

    kind: ClassVar[str] = "renyi"
    order: float
    epsilon: float

    def __post_init__(self) -> None:
        self._check_common()
        if check_positive("order", self.order) <= 1:
            raise GratisError(f"order must be greater than 1, got {self.order}")
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon, allow_infinite=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateDPGuarantee(_Guarantee):
    """(ε, δ)-DP at one point."""

    kind: ClassVar[str] = "approximate-dp"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        self._check_common()
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon, allow_infinite=True))
        object.__setattr__(self, "delta", check_delta(self.delta, allow_zero=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class KLGuarantee(_Guarantee):
    """KL divergence between neighbours' outputs is at most `kl`. This is not (ε, δ)-DP: it bounds an average."""

    kind: ClassVar[str] = "kl"
    kl: float

    def __post_init__(self) -> None:
        self._check_common()
        object.__setattr__(self, "kl", check_non_negative("kl", self.kl, allow_infinite=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PLDGuarantee(_Guarantee):
    """The privacy curve of an event that has no closed form; evaluated numerically from the event itself."""

    kind: ClassVar[str] = "pld"
    event: Event

    def __post_init__(self) -> None:
        self._check_common()


Guarantee = (
    GDPGuarantee
    | GDPWithFailureGuarantee
    | ZCDPGuarantee
    | RenyiGuarantee
    | ApproximateDPGuarantee
    | KLGuarantee
    | PLDGuarantee
)
