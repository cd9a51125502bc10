"""What each paper says about its figure, in our words: the gallery puts it beside what was measured here."""

from __future__ import annotations

__all__ = ["PAPERS", "STATEMENTS"]

PAPERS = {
    "s0": "Bombari and Mondelli, Privacy for free in the overparameterized regime",
    "s1": "Mondelli, Trustworthy machine learning through the lens of high-dimensional probability, lecture notes",
    "s2": "Bombari, Luo, Seroussi and Mondelli, High-dimensional private linear regression with optimal rates",
    "s3": "Ye, Zhu, Liu, Shokri and Cevher, Initialization matters",
    "s4": "Li et al., When does differentially private learning not suffer in high dimensions?",
}

STATEMENTS = {
    "s0-fig1-left": (
        "Two-layer ReLU networks on MNIST, n = 50,000: the accuracy of DP-GD rises with the width and then stays: "
        "about .925 at ε = 4, .908 at ε = 2, .888 at ε = 1. More parameters do not hurt."
    ),
    "s0-fig1-right": (
        "At width 1000 the gap between DP-GD and GD shrinks as n grows; at ε = 4 about .47, .625, .84, .875 for n "
        "= 500, 1000, 5000, 10,000."
    ),
    "s0-fig2-1": (
        "The minimum-norm solution θ* peaks where p is near n. Private random features have no peak: their loss "
        "falls with p and settles near .44, close to θ*."
    ),
    "s0-fig2-2": "For each width one number of iterations is best, and it falls as p grows.",
    "s0-fig2-3": "Plotted against ηTp/d the curves of all widths fall on each other.",
    "s0-fig2-4": (
        "In the plane of clip norm and time: long training with a large clip fails, short training with a small "
        "clip does not move, a large clip fails at any time, a small clip with long training is as good as the "
        "centre."
    ),
    "s0-fig2-5": "The same four regions for a two-layer network on MNIST, width 1000, ε = 1.",
    "s0-thm2": (
        "Theorem 2: with p = Ω(n²) and d ≪ n ≪ d^{3/2} the price of privacy of random features vanishes as n grows, at "
        "a fixed ε and even at ε = o(1), with the clip norm and the time of (8)."
    ),
    "s0-event": (
        "With the clip norm and time of (8) no gradient is clipped on the whole path, with high probability (15): "
        "residuals without noise and what noise adds to them are O(log n), (18) and (19)."
    ),
    "s1-interp": (
        "With a few times more parameters than samples the tangent kernel's least eigenvalue is positive, and "
        "gradient descent fits the labels at a geometric rate."
    ),
    "s1-robust": (
        "Random features stay sensitive however many there are; tangent features with an even activation become "
        "less sensitive like p^(−1/2)."
    ),
    "s1-recon": (
        "From the trained parameters of a random-features model the training samples can be reconstructed once p "
        "is well above n·d."
    ),
    "s1-ladder": "Each better composition theorem asks for less noise: naive, advanced, moments, zCDP, exact.",
    "s1-stairs": (
        "Kernel regression learns one degree after another: between d^ℓ and d^(ℓ+1) samples its error rests on a "
        "plateau."
    ),
    "s2-fig1": (
        "The risk of a run follows a deterministic ODE, with a distance that falls like n^(−1/2), for α = 0, ½ "
        "and different covariances; for α = 0 the last step adds a known amount."
    ),
    "s2-fig2": (
        "Small β: the fitted exponents agree with Theorem 4 at both privacy levels, and grow with α and with q = "
        "2 − β − δ′."
    ),
    "s2-fig3": (
        "Large β and strong privacy: the exponents agree with Theorem 4 for α large enough, and stop growing "
        "beyond some α. A better fit at small values is expected from simulations at smaller γ."
    ),
    "s2-fig4": (
        "Synthetic data: results worsen if the clip level c exceeds a constant or if η₀c is too large; the lowest "
        "risks lie parallel to the line η₀c = const."
    ),
    "s2-fig5": "MNIST, 1 against 7: the same picture as on synthetic data.",
    "s2-fig6": "California housing: the same picture as on synthetic data (seeds that became unstable were left out).",
    "s2-fig7": (
        "Output perturbation wins where the budget is small; larger α only where it is large. The harmonic "
        "schedule is the best for small and large budgets on isotropic data; on other covariances it is the best "
        "for small budgets and on a par with the polynomial ones for large."
    ),
    "s2-fig8": "On MNIST and California housing the harmonic schedule remains optimal.",
    "s2-fig9": "The factors μ_c and ν_c rise from 0 to 1 with the clip level c, at any risk.",
    "s2-fig11": (
        "Figures 10 to 13 of the supplement: in the proof of Theorem 4 one exponent falls and the others rise, and "
        "where they meet lies the best choice."
    ),
    "s2-class": (
        "Nothing: S2 is about linear regression and names generalised linear models as open (section 8). The equation "
        "and its schedules are this project's."
    ),
    "s3-fig1": (
        "Width 1024, depth 10, CIFAR cars and planes: the KL loss grows linearly at first (before 10 epochs), faster "
        "later, and is close to zero early on under LeCun's and Xavier's initialization. The caption says step .001, "
        "the text .01; the batch size is not said."
    ),
    "s3-size": (
        "What s3-fig1 says, with the paper's 10,000 + 2,000 records and width 1024: one step an epoch, step .01."
    ),
    "s3-fig2": (
        "Width always worsens the KL loss. At 20 epochs depth worsens it under He; under LeCun and Xavier it worsens "
        "up to depth 8 and improves beyond. At 50 epochs depth worsens it under all initializations."
    ),
    "s3-tab1": (
        "For four initializations: the expected squared gradient norm B (Lemma C.3), the lazy training distance R "
        "(Lemma 6.3) and the excess risk under ε-KL privacy (Corollary 6.4)."
    ),
    "s3-bound": (
        "For the linearised network the squared gradient difference of neighbours is at most 4B/n² all through "
        "training (Theorem 4.1), so that KL ≤ 2BT/(n²σ²) (Corollary 4.2): it falls with depth under LeCun and Xavier "
        "and grows under He and NTK. The paper draws no figure of it."
    ),
    "s4-fig1": (
        "The loss of the private geometric median grows with the dimension for A = I and stays flat where A decays."
    ),
    "s4-fig2": (
        "Gradients of fine-tuning decay like a power of the index (about k^(−0.6)); training in the subspace of "
        "the leading directions recovers the accuracy."
    ),
    "s4-app": (
        "The spectrum hardly depends on the number of orthogonal iterations (10 or 100), moderately on the number of "
        "recorded gradients, and keeps its fast decay without the gradients of the beginning."
    ),
    "s4-linear": (
        "What s4-fig2 says, for the network's linearisation: its theorem is about convex losses, its experiment is not."
    ),
}
