"""What S0 and S2 say of each claim, in their words: short quotations that a claim of the figure begins with.

A program may also give the words itself (`Claim.words`); claims of our own have none. Formulas that the stored text of
S2 lost are put back in square brackets.
"""

from __future__ import annotations

__all__ = ["QUOTATIONS", "quote"]

_MAP = {
    "c ≫ 1": "performance deteriorates if [c] exceeds […] (upper part of the heatmaps)",
    "η₀c too large": "performance deteriorates if [η₀c] exceeds […] (right part of the heatmaps)",
    "the valley": "the lowest values of the risk are roughly parallel to the line [η₀c = const]",
}
_REGIONS = {
    "top right": "very low utility due to the large noise",
    "bottom right": "the overly pessimistic injection of noise ultimately undermines utility",
    "top left": "Moving toward the Top-Left there is no decrease in performance",
}

# Figure → beginning of the claim → the paper's words.
QUOTATIONS: dict[str, dict[str, str]] = {
    "s0-fig1-left": {
        "accuracy rises": "The test accuracy increases until the network is wide enough",
        "no fall": "… and then plateaus",
    },
    "s0-fig1-right": {
        "the gap to plain descent": "the gap between the GD solution θ* and the DP-GD one tends to vanish by "
        "increasing the number of training samples n",
    },
    "s0-fig2-1": {
        "θ* peaks": "the expected peak at the interpolation threshold (p = n)",
        "θᵖ has no peak": "the lack of an interpolation peak in the test loss of DP-GD",
        "the paper's rule plateaus": "as p increases, it plateaus to a value close to the loss of θ*",
        "at the largest width the gap": "a small performance gap between θᵖ and θ* for overparameterized models",
    },
    "s0-fig2-2": {"the best T falls": "the optimal T minimizing the test error decreases with p"},
    "s0-fig2-3": {
        "the best ηTp/d agrees": "the curves collapse onto each other",
        "one ηTp/d for all widths": "confirming the accuracy of the proposed scaling",
    },
    "s0-fig2-4": _REGIONS | {"bottom left": "the test loss is close to 1 as at initialization"},
    "s0-fig2-5": _REGIONS
    | {"bottom left": "A similar picture emerges from the training of 2-layer neural networks … on MNIST"},
    "s2-fig1": {
        "sup distance falls": "the risk of Algorithm 1 can be well approximated in terms of the solution of a system "
        "of coupled deterministic ODEs",
        "α = 0: the last step": "we report in a short interval at [t = 1] the risk …, after the noise in the last "
        "iteration is added",
        "at d =": "The convergence predicted by Theorem 1 and Proposition 4.4 is already evident at moderate values",
    },
    "s2-fig2": {
        "small γ": "The simulation results (circles) agree well with the values of [ξ] (stars) from Theorem 4",
        "the slope rises with α": "for fixed [β, δ′, r], [ξ] is non decreasing in [α]",
        "stronger privacy": "the privacy requirement has a performance cost",
    },
    "s2-fig3": {
        "small γ": "The simulation results (circles) agree well with the values of [ξ] (stars) from Theorem 4",
        "before that it rises": "larger values of [α] improve performance when [γ] is sufficiently small",
    },
    "s2-fig4": _MAP | {"the ODE predicts": "the test risk of DP-GD is well described by the solution of a "
                       "deterministic family of coupled ordinary differential equations"},
    "s2-fig5": _MAP,
    "s2-fig6": _MAP,
    "s2-fig7": {
        "harmonic is at most every polynomial for γ ≤ .02 at ρ = 0.5 (isotropic)": "clearly displays the benefits of "
        "this choice for both small and large values",
        "harmonic is at most every polynomial for γ ≤ .02 at ρ = 0.5 (power:0.3)": "this schedule performs optimally "
        "for sufficiently small values of [ρ], and it is on par with other polynomial schedules [for large ones]",
        "at the smallest budget": "output perturbation can outperform other schedules",
        "at the largest budget": "larger values of [α] are optimal only for large enough [ρ]",
    },
    "s2-fig8": {
        "digits: harmonic": "the harmonic schedule remains optimal, as suggested by our theory",
        "housing: harmonic": "the harmonic schedule remains optimal, as suggested by our theory",
    },
}  # fmt: skip


def quote(figure: str, claim: str) -> str:
    """Return the paper's words for a claim; empty for one of our own.

    >>> quote("s0-fig2-2", "the best T falls with p (exact rule)")
    'the optimal T minimizing the test error decreases with p'
    >>> quote("s0-fig2-2", "something of ours")
    ''
    """
    for beginning, words in QUOTATIONS.get(figure, {}).items():
        if claim.startswith(beginning):
            return words
    return ""
