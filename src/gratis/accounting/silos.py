"""Sums over silos that trust neither each other nor a coordinator: what each one's share of the noise proves."""

from __future__ import annotations

import math
from dataclasses import replace

from gratis.accounting.composition import leaf_mu
from gratis.numerics.outward import round_up
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import GaussianRelease
from gratis.records.guarantees import GDPGuarantee

__all__ = ["share_event", "silo_guarantees"]


def share_event(event: GaussianRelease, *, honest: int, shares_are_seen: bool) -> GaussianRelease:
    """Return the event of one silo's share, such that the release of all of them is protected as `event` says.

    Silo j sends S_j + s·N(0, I); a record is in one silo, so it moves one share, by the event's sensitivity.

    * Who sees every share (a coordinator, or who reads its mail) is faced with the noise of the record's own silo
      alone, whatever the others do: s is the event's own deviation. m silos then have m times its variance.
    * If only the total can be seen (secure aggregation), and at least k silos added their noise and kept it to
      themselves, the record's own among them, then what the others know or left out can be subtracted and noise of
      variance k·s² stays: s is the event's deviation over √k.

    Shares lie on a grid at most 2⁻²⁰ of s wide. By Poisson's summation formula the total of k of them has the law of
    N(0, k·s²) plus independent uniforms (post-processing) on that grid, up to a term of the order exp(−2π²·2⁴⁰).

    >>> central = GaussianRelease(sensitivity=1.0, noise_std=4.0, neighbouring="replace-one")
    >>> share_event(central, honest=4, shares_are_seen=False).noise_std
    2.0000000000000...
    """
    honest = check_count("honest", honest)
    std = check_positive("noise_std", event.noise_std)
    if event.count != 1:
        raise GratisError("a share is of one release")
    return event if shares_are_seen else replace(event, noise_std=round_up(std / math.sqrt(honest), ulps=64))


def silo_guarantees(share: GaussianRelease, *, honest: int) -> tuple[GDPGuarantee, GDPGuarantee]:
    """Return what a record of an honest silo has against who sees every share, and against who sees the total alone.

    >>> share = GaussianRelease(sensitivity=1.0, noise_std=2.0, neighbouring="replace-one")
    >>> [round(found.mu, 9) for found in silo_guarantees(share, honest=4)]
    [0.5, 0.25]
    """
    mu = leaf_mu(share)
    of_total = round_up(mu / math.sqrt(check_count("honest", honest)), ulps=8)
    return tuple(GDPGuarantee(mu=value, neighbouring=share.neighbouring) for value in (mu, of_total))  # type: ignore[return-value]
