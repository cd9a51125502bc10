"""Which initialization and which depth leak least, and what that costs, from public sizes alone (S3)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from gratis.accounting.kl import total_variation_upper_bound
from gratis.planning.bounds.initialization import (
    Scheme,
    excess_risk_tradeoff,
    general_network_kl_upper_bound,
    gradient_norm_constant,
    layer_variances,
    layer_widths,
    lazy_training_distance,
    linearised_kl_upper_bound,
)
from gratis.records.checks import check_count, check_positive
from gratis.records.neighbouring import Neighbouring
from gratis.records.record import Record

__all__ = ["InitializationComparison", "NetworkChoice", "compare_initializations"]


@dataclass(frozen=True, slots=True)
class NetworkChoice(Record):
    """One initialization at one depth: what it leaks at the reference run, and its risk bound under the budget."""

    scheme: str
    depth: int
    gradient_norm_constant: float
    lazy_distance: float
    kl_of_reference_run: float
    published_kl_of_reference_run: float
    time: float
    noise_std: float
    excess_risk_bound: float
    general_kl_of_reference_run: float | None = None


@dataclass(frozen=True, slots=True)
class InitializationComparison(Record):
    """All choices, the one that leaks least in the same run, the one with the smallest risk bound, and the words."""

    choices: tuple[NetworkChoice, ...]
    leaks_least: NetworkChoice
    costs_least: NetworkChoice
    kl_budget: float
    membership_advantage_upper_bound: float
    neighbouring: Neighbouring
    reasons: tuple[str, ...]
    assumptions: tuple[str, ...]


def compare_initializations(
    n_records: int,
    n_inputs: int,
    n_classes: int,
    *,
    width: int,
    depth: int,
    kl_budget: float,
    time: float = 0.5,
    noise_std: float = 0.01,
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE,
    roughness: tuple[float, float] | None = None,
) -> InitializationComparison:
    """Compare the four initializations at depths 2, 4, 8, … up to `depth` (and at `depth` itself).

    Every choice gets B, the KL bound of one reference run (the same T and σ for all: S3's 50 epochs at step .01 and
    σ = .01 unless said), and T, σ and excess-risk bound of Corollary 6.4 under the budget.

    Parameters
    ----------
    n_records, n_inputs, n_classes : int
        n, d, and the outputs: 1 is one logistic output, 2 and more softmax.
    width, depth : int
        Hidden width m, and L weight matrices.
    kl_budget : float
        Largest KL between the runs of neighbours; bounds membership advantage, is not (ε, δ)-DP.
    roughness : (β, c), optional
        ‖∇ℓ(W) − ∇ℓ(W′)‖ < max{c, β‖W − W′‖}: with them every choice also gets Lemma 3.2's bound, for the network itself
        and not its linearisation, replace-one.

    >>> found = compare_initializations(10_000, 3072, 2, width=1024, depth=10, kl_budget=1.0)
    >>> found.leaks_least.scheme, found.leaks_least.depth
    ('lecun', 10)
    """
    largest = check_count("depth", depth)
    check_positive("kl_budget", kl_budget)
    relation = Neighbouring.parse(neighbouring)
    depths = sorted({2**k for k in range(1, largest.bit_length()) if 2**k < largest} | {largest})
    choices = tuple(
        _choice(
            scheme,
            layer_widths(n_inputs, width, L, n_classes),
            n_records,
            kl_budget,
            time,
            noise_std,
            relation,
            roughness,
        )
        for L in depths
        for scheme in Scheme
    )
    leaks = min(choices, key=lambda c: (c.gradient_norm_constant, c.depth))
    # The optimum's T tends to the largest depths when B falls: ties go to the shallower network.
    costs = min(choices, key=lambda c: (c.excess_risk_bound, c.depth))
    worst = max(choices, key=lambda c: c.gradient_norm_constant)
    advantage = total_variation_upper_bound(kl=kl_budget)
    reasons: tuple[str, ...] = (
        f"leaks least: {leaks.scheme} at depth {leaks.depth}, B = {leaks.gradient_norm_constant:.4g}; the most is "
        f"{worst.scheme} at depth {worst.depth}, {worst.gradient_norm_constant / leaks.gradient_norm_constant:.3g} "
        "times as much in the same run",
        f"least excess-risk bound under KL ≤ {kl_budget:g}: {costs.scheme} at depth {costs.depth}, "
        f"{costs.excess_risk_bound:.4g} with T = {costs.time:.4g} and σ = {costs.noise_std:.4g}",
        f"KL ≤ {kl_budget:g} caps membership advantage at {advantage:.3g}; it is not (ε, δ)-DP, and one rare event "
        "may still give a record away",
    )
    trivial = math.log(max(2, n_classes))
    if costs.excess_risk_bound > trivial:
        reasons += (
            f"every risk bound lies above ln {max(2, n_classes)} = {trivial:.3g}, what predicting nothing costs",
        )
    assumptions = (
        "linearised network at random initial weights, bounds in expectation over them",
        "inputs of norm at most √d; all iterates released",
        "the lazy distance leaves logarithms out and is proved for one output and widths of order n or more"
        + ("" if n_classes == 1 else "; for softmax it is an extrapolation"),
    )
    return InitializationComparison(choices, leaks, costs, kl_budget, advantage, relation, reasons, assumptions)


def _choice(
    scheme: Scheme,
    widths: tuple[int, ...],
    n: int,
    kl_budget: float,
    time: float,
    noise_std: float,
    relation: Neighbouring,
    roughness: tuple[float, float] | None,
) -> NetworkChoice:
    variances = layer_variances(scheme, widths)
    constant, distance = gradient_norm_constant(widths, variances), lazy_training_distance(widths, variances, n)
    outputs = widths[-1]
    bound = linearised_kl_upper_bound(
        constant, time=time, noise_std=noise_std, n_records=n, n_outputs=outputs, neighbouring=relation
    )
    best = excess_risk_tradeoff(
        constant, distance, n_records=n, kl_budget=kl_budget, n_outputs=outputs, neighbouring=relation
    )
    return NetworkChoice(
        str(scheme), len(widths) - 1, constant, distance, bound.kl, bound.published, best.time, best.noise_std,
        best.excess_risk, None if roughness is None else _general_kl(constant, widths, n, time, noise_std, roughness),
    )  # fmt: skip


def _general_kl(
    constant: float, widths: tuple[int, ...], n: int, time: float, noise_std: float, roughness: tuple[float, float]
) -> float:
    """Lemma 3.2 with what B bounds at the start: Δ₀ ≤ 4qB/n² and E‖∇L‖² ≤ qB, gradients anywhere among all weights."""
    q = 1 if widths[-1] == 1 else 2
    return general_network_kl_upper_bound(
        initial_squared_difference=4 * q * constant / n**2, initial_squared_gradient=q * constant,
        smoothness=roughness[0], jump=roughness[1], rank=sum(a * b for a, b in itertools.pairwise(widths)),
        time=time, noise_std=noise_std, n_records=n,
    ).kl  # fmt: skip
