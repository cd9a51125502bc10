"""What no algorithm can beat, private or not: the Bayes risk of the problem, with its constant."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from gratis.planning.one_pass.problem import OnePassProblem

__all__ = ["bayes_excess_risk"]

_DIMENSION = 400  # atoms of the spectrum: the equation below averages over them
_LEAST_NOISE = 1e-9  # of the signal: the equation degenerates without label noise


def bayes_excess_risk(problem: OnePassProblem) -> float:
    """Return the least mean excess risk over θ* ~ N(0, diag) with the problem's energies, x Gaussian, as n, d → ∞.

    The posterior mean reaches it: ridge regression on √(energy)·x, whose risk is (Dobriban & Wager 2018, Theorem 2.1)

        R = ½ζ²(1/(λv) − 1),   1/v = λ + γ·mean τ/(1 + τv),   λ = γζ²/S,   τ_i = d·λ_i⟨v_i, θ*⟩²/S.

    By the second equation R = ½S·mean τ/(1 + τv), where nothing cancels, and u = λv solves 1 − u = (S/ζ²)u·mean.
    No algorithm, private or not, is better on average over such θ*, hence none on the worst of them.

    >>> problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25)
    >>> round(bayes_excess_risk(problem), 4), round(0.25 / 2 * 0.1 / (1 - 0.1), 4)  # beside least squares
    (0.0135, 0.0139)
    """
    signal = problem.signal_variance
    if signal == 0:
        return 0.0
    noise = max(problem.label_noise_variance, _LEAST_NOISE * signal)
    shares = problem.spectrum.eigenvalues(_DIMENSION) * problem.spectrum.signal_energies(_DIMENSION) * _DIMENSION
    penalty, ratio = problem.gamma * (noise / signal), signal / noise
    shares = shares[shares > 0]

    def left(u: float) -> float:
        """The part of the signal that is not learnt."""
        return float(np.sum(shares / (1 + shares * (u / penalty)))) / _DIMENSION

    # 1 at u = 0, not positive at 1; the root is at least 1/(1 + S/ζ²), above 1e-9.
    u = float(brentq(lambda u: 1 - u - ratio * u * left(u), 0.0, 1.0, xtol=1e-24, rtol=1e-12))
    return min(problem.initial_risk * left(u), problem.initial_risk)
