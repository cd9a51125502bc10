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
    penalty = problem.gamma * noise / signal

    def gap(v: float) -> float:
        return 1 / v - penalty - problem.gamma * float(np.mean(shares / (1 + shares * v)))

    # At v = 1/λ the gap is not positive, near 0 it is.
    v = float(brentq(gap, 1e-9 / (penalty + problem.gamma), 1 / penalty, xtol=1e-15, rtol=1e-12))
    return float(min(max(0.5 * noise * (1 / (penalty * v) - 1), 0.0), problem.initial_risk))
