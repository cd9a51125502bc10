"""What a KL bound means: total variation, and with it membership advantage (S3). KL is not (ε, δ)-DP."""

from __future__ import annotations

import math

from gratis.numerics.outward import round_up
from gratis.records.checks import check_non_negative, check_positive

__all__ = ["gdp_kl", "noisy_descent_kl_upper_bound", "total_variation_upper_bound"]


def total_variation_upper_bound(*, kl: float) -> float:
    """Smaller of Pinsker's √(KL/2) and Bretagnolle–Huber's √(1 − e^{−KL}); bounds membership advantage.

    >>> total_variation_upper_bound(kl=100.0) <= 1.0
    True
    """
    kl = check_non_negative("kl", kl, allow_infinite=True)
    if kl == 0:
        return 0.0
    return min(1.0, round_up(min(math.sqrt(kl / 2), math.sqrt(-math.expm1(-kl)))))


def gdp_kl(*, mu: float) -> float:
    """KL(N(μ,1)‖N(0,1)) = μ²/2: what μ-GDP implies."""
    mu = check_non_negative("mu", mu, allow_infinite=True)
    return 0.0 if mu == 0 else round_up(mu * mu / 2)


def noisy_descent_kl_upper_bound(*, squared_gradient_differences: float, step_size: float, noise_std: float) -> float:
    """KL = (1/(4σ²))·η·Σ_k E‖∇L(W_k;D) − ∇L(W_k;D′)‖² for W ← W − η∇L + √(2ησ²)Z, all iterates released.

    S3 prints 1/(2σ²), twice too large: each step is a Gaussian of variance 2ησ² whose mean moves by η‖·‖, so its
    KL is η²‖·‖²/(2·2ησ²).
    """
    total = check_non_negative("squared_gradient_differences", squared_gradient_differences)
    step_size = check_positive("step_size", step_size)
    noise_std = check_positive("noise_std", noise_std)
    return 0.0 if total == 0 else round_up(step_size * total / (4 * noise_std**2), ulps=8)
