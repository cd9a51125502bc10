"""How initial weights set what noisy training of a ReLU network leaks: S3's constants, corrected.

Formulas, and where S3 slips: docs/theory/initialization.md, statement 2.

Fully connected, no biases, widths m_0 = d, …, m_L = o, layer l drawn from N(0, β_l). KL bounds are not (ε, δ)-DP.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gratis.records.checks import check_count, check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

__all__ = [
    "KLBound",
    "Scheme",
    "Tradeoff",
    "excess_risk_tradeoff",
    "general_network_kl_upper_bound",
    "gradient_norm_constant",
    "layer_variances",
    "layer_widths",
    "lazy_training_distance",
    "linearised_kl_upper_bound",
    "published_gradient_norm_constant",
]


class Scheme(StrEnum):
    """The four named initializations of S3's Table 1."""

    LECUN = "lecun"
    HE = "he"
    XAVIER = "xavier"
    NTK = "ntk"

    @classmethod
    def parse(cls, name: str | Scheme) -> Scheme:
        """Read a name; an unknown one is refused.

        >>> Scheme.parse("He")
        <Scheme.HE: 'he'>
        """
        try:
            return cls(str(name).lower())
        except ValueError:
            raise GratisError(f"unknown initialization {name!r}; expected {', '.join(cls)}") from None


def layer_widths(n_inputs: int, width: int, depth: int, n_outputs: int) -> tuple[int, ...]:
    """Return (d, m, …, m, o) for L = `depth` weight matrices.

    >>> layer_widths(3072, 1024, 3, 2)
    (3072, 1024, 1024, 2)
    """
    hidden = [check_count("width", width)] * (check_count("depth", depth) - 1)
    return (check_count("n_inputs", n_inputs), *hidden, check_count("n_outputs", n_outputs))


def layer_variances(scheme: str | Scheme, widths: Sequence[int]) -> tuple[float, ...]:
    """Return β_1 … β_L: LeCun 1/m_{l−1}; He 2/m_{l−1}; Xavier 2/(m_{l−1}+m_l); NTK 2/m_l, and 1/o for the last.

    >>> layer_variances("ntk", (4, 8, 2))
    (0.25, 0.5)
    """
    chosen, sizes = Scheme.parse(scheme), _check_widths(widths)
    pairs = list(itertools.pairwise(sizes))
    if chosen is Scheme.LECUN:
        return tuple(1 / before for before, _ in pairs)
    if chosen is Scheme.HE:
        return tuple(2 / before for before, _ in pairs)
    if chosen is Scheme.XAVIER:
        return tuple(2 / (before + after) for before, after in pairs)
    return (*(2 / after for _, after in pairs[:-1]), 1 / sizes[-1])


def gradient_norm_constant(
    widths: Sequence[int], variances: Sequence[float], *, squared_input_norm: float | None = None
) -> float:
    """E‖∂f/∂W‖_F² = ‖x‖²·o·∏_{i<L}(β_i m_i/2)·Σ_l β_L/β_l at random weights; S3's B when ‖x‖² = d (the default).

    Exact at every width: given the layers below, a ReLU passes a Gaussian row with probability ½, whatever its size.

    Reference: S3, Lemma C.3 and (7).

    >>> gradient_norm_constant((3072, 1024, 2), layer_variances("he", (3072, 1024, 2)))
    8192.0
    """
    sizes, betas = _check_network(widths, variances)
    size = (
        float(sizes[0]) if squared_input_norm is None else check_non_negative("squared_input_norm", squared_input_norm)
    )
    if size == 0:
        return 0.0
    # Every term β_L/β_l·∏ is a product of L factors: logarithms keep very deep networks from overflowing half-way.
    gain = sum(math.log(beta) + math.log(m / 2) for beta, m in zip(betas[:-1], sizes[1:-1], strict=True))
    paths = sum(betas[-1] / beta for beta in betas)
    exponent = math.log(size) + math.log(sizes[-1]) + gain + math.log(paths)
    product = size * sizes[-1] * paths * math.prod(b * m / 2 for b, m in zip(betas[:-1], sizes[1:-1], strict=True))
    return product if 0 < product < math.inf else _exp(exponent)


def published_gradient_norm_constant(
    scheme: str | Scheme, n_inputs: int, width: int, depth: int, n_outputs: int
) -> float:
    """B as S3 prints it in Table 1, for depth ≥ 2: a check on the general formula.

    >>> published_gradient_norm_constant("lecun", 3072, 1024, 2, 2)
    4096.0
    """
    chosen = Scheme.parse(scheme)
    d, m, o = check_count("n_inputs", n_inputs), check_count("width", width), check_count("n_outputs", n_outputs)
    L = check_count("depth", depth, minimum=2)
    if chosen is Scheme.LECUN:
        return o * m * (L - 1 + d / m) / 2 ** (L - 1)
    if chosen is Scheme.HE:
        return o * m * (L - 1 + d / m)
    if chosen is Scheme.NTK:
        return d * m * ((L - 1) / 2 + o / m)
    return o * d * (L - 1 + (d + o) / (2 * m)) / (2.0 ** (L - 3) * (1 + d / m) * (1 + o / m))


@dataclass(frozen=True, slots=True)
class KLBound:
    """A bound on KL(all iterates on D ‖ all iterates on D′), what S3 prints for it, and why they differ."""

    kl: float
    published: float
    neighbouring: Neighbouring
    difference: str


def linearised_kl_upper_bound(
    constant: float,
    *,
    time: float,
    noise_std: float,
    n_records: int,
    n_outputs: int,
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE,
) -> KLBound:
    """KL ≤ q·BT/(n²σ²) for the linearised network: q = 1 for one logistic output, 2 for softmax; zero-out a quarter.

    E‖∇L(D) − ∇L(D′)‖² ≤ (κ²/n²)·q·B with q the largest ‖softmax − y‖² (2) or |logistic′|² (1), and
    KL = (1/(4σ²))·∫ of it.

    **Guarantee**: holds in expectation over the initial weights, ‖x‖ ≤ √d, for Langevin diffusion of time T and for
    noisy gradient descent with T = steps × step size, with noise √(2ησ²). It bounds total variation, not (ε, δ).

    Parameters
    ----------
    constant : float
        B of `gradient_norm_constant`.
    time : float
        T.
    noise_std : float
        σ.

    Reference: S3, Theorem 4.1 and Corollary 4.2.

    >>> linearised_kl_upper_bound(8192.0, time=0.5, noise_std=0.01, n_records=10_000, n_outputs=2).kl
    0.8192
    """
    base = check_non_negative("constant", constant) * check_non_negative("time", time)
    base /= check_count("n_records", n_records) ** 2 * check_positive("noise_std", noise_std) ** 2
    published = 2 * base
    relation = Neighbouring.parse(neighbouring)
    share = relation.sensitivity_factor**2 / 4
    kl = base * _squared_factor(n_outputs) * share
    if check_count("n_outputs", n_outputs) == 1:
        words = "half of S3's: the path divergence carries 1/(4σ²), not 1/(2σ²)"
    else:
        words = "equal to S3's: it drops ‖softmax − y‖² ≤ 2 and carries 1/(2σ²) for 1/(4σ²), which cancel"
    if share < 1:
        words += "; a quarter of the replace-one bound, since only one gradient is lost"
    return KLBound(kl, published, relation, words)


def general_network_kl_upper_bound(
    *,
    initial_squared_difference: float,
    initial_squared_gradient: float,
    smoothness: float,
    jump: float,
    rank: int,
    time: float,
    noise_std: float,
    n_records: int,
) -> KLBound:
    """Lemma 3.2 for any network, corrected: KL ≤ (1/(4σ²))·[2TΔ₀ + 4·fluctuation + 4·2c²T/n²], replace-one.

    fluctuation = 2β²/(n²(2+β²))·((e^{(2+β²)T} − 1)/(2+β²) − T)·(E‖∇L(W₀)‖² + 2σ²·rank + c²). S3 lets only one of the
    two records' gradients move, so its second and third terms miss a factor 4; its 1/(2σ²) is twice the right one.

    Parameters
    ----------
    initial_squared_difference : float
        Δ₀ = E‖∇L(W₀;D) − ∇L(W₀;D′)‖²; at most 4qB/n².
    initial_squared_gradient : float
        E‖∇L(W₀;D)‖²; at most qB.
    smoothness, jump : float
        β and c: ‖∇ℓ(W) − ∇ℓ(W′)‖ < max{c, β‖W − W′‖} on the span of the gradients.
    rank : int
        Dimension of the span of all gradients met in training, those of the *new* record included.

    >>> bound = general_network_kl_upper_bound(initial_squared_difference=1e-4, initial_squared_gradient=1.0,
    ...     smoothness=0.0, jump=0.0, rank=10, time=1.0, noise_std=0.1, n_records=100)
    >>> round(bound.kl, 6), round(bound.published, 6)
    (0.005, 0.01)
    """
    T, n = check_non_negative("time", time), check_count("n_records", n_records)
    variance = check_positive("noise_std", noise_std) ** 2
    c = check_non_negative("jump", jump)
    rate = 2 + check_non_negative("smoothness", smoothness) ** 2
    start = 2 * T * check_non_negative("initial_squared_difference", initial_squared_difference)
    drive = check_non_negative("initial_squared_gradient", initial_squared_gradient)
    drive += 2 * variance * check_count("rank", rank, minimum=0) + c**2
    growth = math.inf if rate * T > 700 else (math.expm1(rate * T) / rate - T) / rate
    moved = 2 * smoothness**2 * growth * drive / n**2 if smoothness > 0 and T > 0 else 0.0
    jumped = 2 * c**2 * T / n**2
    return KLBound(
        (start + 4 * moved + 4 * jumped) / (4 * variance),
        (start + moved + jumped) / (2 * variance),
        Neighbouring.REPLACE_ONE,
        "1/(4σ²) for S3's 1/(2σ²); fluctuation and jumps four times S3's, because both records' gradients move",
    )


def lazy_training_distance(widths: Sequence[int], variances: Sequence[float], n_records: int) -> float:
    """R̃ = max{1, 1/(dβ_L∏_{i<L}β_i m_i)}·n/Σ_l β_l⁻¹: squared way to a 1/n²-optimum, logarithms left out.

    Proved for one output, widths of order n and more, inputs of norm √d (S3, Lemma 6.3); elsewhere an extrapolation.

    >>> widths = (3072, 1024, 1024, 1)
    >>> round(lazy_training_distance(widths, layer_variances("lecun", widths), 10_000), 4)
    1.9531
    """
    sizes, betas = _check_network(widths, variances)
    gain = math.log(sizes[0]) + math.log(betas[-1])
    gain += sum(math.log(beta * m) for beta, m in zip(betas[:-1], sizes[1:-1], strict=True))
    return max(1.0, _exp(-gain)) * check_count("n_records", n_records) / sum(1 / beta for beta in betas)


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """The time and noise that minimise the excess-risk bound under a KL budget, and the bound's two parts."""

    time: float
    noise_std: float
    excess_risk: float
    optimisation: float
    noise: float


def excess_risk_tradeoff(
    constant: float,
    distance: float,
    *,
    n_records: int,
    kl_budget: float,
    n_outputs: int = 1,
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE,
) -> Tradeoff:
    """Corollary 6.4, corrected: excess ≤ 1/n² + R/(2T) + σ²·n·o at σ² = q′BT/(εn²), least at T = √(εnR/(2q′oB)).

    For one logistic output (q′ = 1): 1/n² + √(2BR/(εn)). q′ is 2 for softmax, a quarter of that for zero-out; rank of
    the features at most n·o. S3's noise term ½σ²·rank misses a factor 2 of its own derivation.

    Parameters
    ----------
    constant, distance : float
        B and R.
    kl_budget : float
        ε, a bound on the divergence, not an (ε, δ)-DP parameter.

    >>> tradeoff = excess_risk_tradeoff(100.0, 2.0, n_records=1000, kl_budget=0.1)
    >>> round(tradeoff.time, 12), round(tradeoff.excess_risk - 1e-6, 9) == round((2 * 100 * 2 / 100) ** 0.5, 9)
    (1.0, True)
    """
    B, R = check_positive("constant", constant), check_positive("distance", distance)
    n, budget = check_count("n_records", n_records), check_positive("kl_budget", kl_budget)
    outputs = check_count("n_outputs", n_outputs)
    leak = B * _squared_factor(outputs) * Neighbouring.parse(neighbouring).sensitivity_factor ** 2 / 4
    time = math.sqrt(budget * n * R / (2 * leak * outputs))
    variance = leak * time / (budget * n**2)
    optimisation, noise = R / (2 * time), variance * n * outputs
    return Tradeoff(time, math.sqrt(variance), 1 / n**2 + optimisation + noise, optimisation, noise)


def _squared_factor(n_outputs: int) -> int:
    return 1 if check_count("n_outputs", n_outputs) == 1 else 2


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 709 else math.inf


def _check_widths(widths: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(check_count("a width", width) for width in widths)
    if len(sizes) < 2:
        raise GratisError("a network needs a depth of at least 1: an input and an output width")
    return sizes


def _check_network(widths: Sequence[int], variances: Sequence[float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    sizes = _check_widths(widths)
    betas = tuple(check_positive("a layer variance", beta) for beta in variances)
    if len(betas) != len(sizes) - 1:
        raise GratisError(f"expected one variance for each of {len(sizes) - 1} layers, got {len(betas)}")
    return sizes, betas
