"""S3: Table 1 with Lemma C.3 by Monte-Carlo, Figure 1 (KL against epochs), Figure 2 (KL against depth and width).

Noisy gradient descent on ReLU networks; KL of every neighbour (each record removed, each test record added), mean
over runs, worst neighbour. The linearised bound is drawn beside it: it is a replace-one bound for another model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.audits.kl import estimate_kl, explain_kl
from gratis.papers.registry import Claim, PaperResult
from gratis.theory.initialization import (
    Scheme,
    gradient_norm_constant,
    layer_variances,
    layer_widths,
    linearised_kl_upper_bound,
    published_gradient_norm_constant,
)

__all__ = ["divergence_against_epochs", "divergence_against_shape", "sampled_squared_jacobian", "table_one"]

Array = NDArray[np.float64]
NOISE_STD = 0.01
_COLOURS = {"lecun": "#2a7f9e", "xavier": "#5aa469", "he": "#c8553d", "ntk": "#7a5195"}
_COST = (
    "the paper's scale (width 1024, 10,000 + 2,000 images, 6 runs, 50 epochs, four initializations) is 1200 steps of "
    "about 1.2e12 operations; it needs some hours of two free cores"
)


def sampled_squared_jacobian(
    widths: Sequence[int], all_variances: Sequence[Sequence[float]], samples: int, rng: np.random.Generator
) -> list[tuple[float, float]]:
    """Monte-Carlo mean of ‖∂f/∂W‖_F² over initial weights at ‖x‖² = d, with its standard error, for each β.

    Forward and backward by hand on weights of variance 1/fan-in. ReLU networks are homogeneous in every layer, so one
    sample serves all variances: ‖∂f/∂W_l‖² carries the factor ∏_{i≠l} β_i·m_{i−1}.
    """
    depth = len(widths) - 1
    norms = np.empty((samples, depth))
    block = max(1, int(2e6 // max(a * b for a, b in zip(widths[:-1], widths[1:], strict=True))))
    for start in range(0, samples, block):
        count = min(block, samples - start)
        weights = [
            rng.standard_normal((count, after, before), dtype=np.float32) / np.float32(math.sqrt(before))
            for before, after in zip(widths[:-1], widths[1:], strict=True)
        ]
        h = np.ones((count, widths[0], 1), dtype=np.float32)
        lengths, masks = [], []
        for i, w in enumerate(weights):
            lengths.append(np.square(h, dtype=np.float64).sum(axis=(1, 2)))
            h = w @ h
            if i < depth - 1:
                masks.append(h[:, :, 0] > 0)
                h = np.maximum(h, 0)
        # ∂f_j/∂W_l = (row j of W_L D_{L−1} … W_{l+1} D_l) ⊗ h_{l−1}: only the norms of both factors are needed.
        back = np.broadcast_to(np.eye(widths[-1], dtype=np.float32), (count, widths[-1], widths[-1]))
        for i in range(depth - 1, -1, -1):
            norms[start : start + count, i] = lengths[i] * np.square(back, dtype=np.float64).sum(axis=(1, 2))
            if i:
                back = (back @ weights[i]) * masks[i - 1][:, None, :]
    found = []
    for variances in all_variances:
        gains = np.array(variances) * np.array(widths[:-1])
        values = norms @ (np.prod(gains) / gains)
        found.append((float(values.mean()), float(values.std(ddof=1) / math.sqrt(samples))))
    return found


def table_one(scale: str, rng: np.random.Generator) -> PaperResult:
    """Table 1: B in closed form, by the general formula, and by sampling the initial weights."""
    samples = 8000 if scale == "smoke" else 40_000
    shapes = [(20, 40, 2, 3), (12, 60, 3, 1), (30, 50, 4, 10)]
    rows = []
    for shape in shapes:
        widths = layer_widths(*shape)
        all_variances = [layer_variances(scheme, widths) for scheme in Scheme]
        sampled_norms = sampled_squared_jacobian(widths, all_variances, samples, rng)
        for scheme, variances, (mean, error) in zip(Scheme, all_variances, sampled_norms, strict=True):
            rows.append(
                {
                    "d": shape[0], "width": shape[1], "depth": shape[2], "outputs": shape[3], "scheme": str(scheme),
                    "table": published_gradient_norm_constant(scheme, *shape),
                    "general": gradient_norm_constant(widths, variances), "sampled": mean, "error": error,
                }  # fmt: skip
            )
    closed = max(abs(row["table"] / row["general"] - 1) for row in rows)
    sampled = max(abs(row["sampled"] / row["general"] - 1) for row in rows)
    claims = [
        Claim("Table 1's closed forms equal the general formula (relative difference below 1e-12)", closed < 1e-12, closed),
        Claim("Lemma C.3 within 2 % of Monte-Carlo for all four at three shapes", sampled < 0.02, sampled),
    ]  # fmt: skip

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        depths = np.arange(2, 21)
        for scheme in Scheme:
            values = [published_gradient_norm_constant(scheme, 3072, 1024, int(L), 2) for L in depths]
            left.plot(depths, values, color=_COLOURS[scheme], label=str(scheme))
        left.set(yscale="log", xlabel="depth", ylabel="B", title="d=3072, width 1024, 2 outputs")
        left.legend(frameon=False, fontsize=8)
        for i, row in enumerate(rows):
            ratio, error = row["sampled"] / row["general"], row["error"] / row["general"]
            right.errorbar(i, ratio, 2 * error, fmt="o", ms=4, color=_COLOURS[row["scheme"]])
        right.axhspan(0.98, 1.02, color="#8a93a6", alpha=0.2)
        right.set(xlabel="shape and initialization", ylabel="sampled / Lemma C.3", title="bars: 2 standard errors")

    return PaperResult({"samples": samples, "shapes": shapes}, rows, claims, draw)


def divergence_against_epochs(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 1: KL of the worst neighbour while training goes on, at both step sizes that the paper names."""
    smoke = scale == "smoke"
    width, depth, records = (64, 4, 100) if smoke else (256, 10, 600)
    epochs = (1, 2, 5, 10, 20) if smoke else (1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
    runs = {0.01: 3 if smoke else 6, 0.001: 2 if smoke else 3}
    data, name = _data(smoke, records)
    rows = []
    for step_size, count in runs.items():
        for scheme in Scheme:
            rows += _curve(data, scheme, width, depth, epochs, step_size, count, rng)
    settings = _settings(data, name, runs) | {"width": width, "depth": depth, "epochs": list(epochs)}
    claims = []
    for step_size in runs:
        kl = {s: {r["epoch"]: r["kl"] for r in _select(rows, step_size=step_size, scheme=str(s))} for s in Scheme}
        for scheme in Scheme:
            if epochs[-1] not in kl[scheme]:
                reached = max(kl[scheme], default=0)
                claims.append(Claim(f"step {step_size}: {scheme} trains to the end; it diverges after the epoch shown",
                                    False, reached))  # fmt: skip
        whole = [s for s in Scheme if epochs[-1] in kl[s]]
        bend = {s: kl[s][10] / (10 * kl[s][1]) for s in whole}
        worst = max(whole, key=lambda s: abs(math.log(bend[s])))
        claims.append(Claim(f"step {step_size}: linear up to epoch 10 for all (KL(10)/(10·KL(1)) between ½ and 2)",
                            0.5 < bend[worst] < 2, bend[worst]))  # fmt: skip
        ratio = min(kl[s][epochs[-1]] / kl[s][10] / (epochs[-1] / 10) for s in whole)
        claims.append(Claim(f"step {step_size}: faster than linear later, for all", ratio > 1, ratio))
        low = max(kl[Scheme.LECUN][10], kl[Scheme.XAVIER][10])
        gap = min(kl[s][10] for s in whole if s in (Scheme.HE, Scheme.NTK)) / low
        claims.append(Claim(f"step {step_size}: LeCun and Xavier at least 10 times below He and NTK at epoch 10",
                            gap > 10, gap))  # fmt: skip

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, step_size in zip(panels, runs, strict=True):
            for scheme in Scheme:
                chosen = _select(rows, step_size=step_size, scheme=str(scheme))
                x = [row["epoch"] for row in chosen]
                kl, spread = (np.array([row[key] for row in chosen]) for key in ("kl", "spread"))
                axes.plot(x, kl, "o-", ms=2.5, color=_COLOURS[scheme], label=str(scheme))
                axes.fill_between(x, np.maximum(kl - spread, kl / 10), kl + spread, color=_COLOURS[scheme], alpha=0.2)
                axes.plot(x, [row["bound"] for row in chosen], "--", lw=0.8, color=_COLOURS[scheme])
            axes.set(xscale="log", yscale="log", xlabel="epochs", title=f"step {step_size}, {runs[step_size]} runs")
        panels[0].set_ylabel("KL of the worst neighbour (dashed: linearised bound)")
        panels[1].legend(frameon=False, fontsize=8)

    return PaperResult(settings, rows, claims, draw, _notes(smoke))


def divergence_against_shape(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 2: KL of the worst neighbour against depth (20 and 50 epochs) and against width (50 epochs)."""
    smoke = scale == "smoke"
    depths = (2, 4, 6) if smoke else (2, 4, 6, 8, 10, 14)
    widths = (32, 64, 128) if smoke else (64, 128, 256, 512)
    fixed_width, fixed_depth, records, runs = (64, 4, 80, 2) if smoke else (128, 10, 400, 3)
    epochs = (5, 20) if smoke else (20, 50)
    data, name = _data(smoke, records)
    rows = []
    for scheme in Scheme:
        for depth in depths:
            rows += _curve(data, scheme, fixed_width, depth, epochs, 0.01, runs, rng, panel="depth")
        for width in widths:
            rows += _curve(data, scheme, width, fixed_depth, epochs[-1:], 0.01, runs, rng, panel="width")
    settings = _settings(data, name, {0.01: runs})
    settings |= {"depths": list(depths), "widths": list(widths), "fixed_width": fixed_width, "fixed_depth": fixed_depth}

    def kl(scheme: Scheme, panel: str, epoch: int) -> Array:
        return np.array([row["kl"] for row in _select(rows, panel=panel, scheme=str(scheme), epoch=epoch)])

    growth = {s: _least_rise(kl(s, "width", epochs[-1])) for s in Scheme}
    lost = len(Scheme) * (2 * len(depths) + len(widths)) - len(rows)
    claims = [Claim("every network trains to the end (number of points lost to divergence)", lost == 0, lost)]
    claims += [Claim("width always worsens: KL rises at every step of width for all four", min(growth.values()) > 0,
                    min(growth.values()))]  # fmt: skip
    for scheme in (Scheme.LECUN, Scheme.XAVIER):
        values = kl(scheme, "depth", epochs[0])
        ratio = float(values[-1] / values.max())
        claims.append(Claim(f"{epochs[0]} epochs: {scheme} improves beyond some depth", ratio < 0.9, ratio))
    rise = _least_rise(kl(Scheme.HE, "depth", epochs[0]))
    claims.append(Claim(f"{epochs[0]} epochs: he worsens with depth", rise > 0, rise))
    rises = {s: _least_rise(kl(s, "depth", epochs[1])) for s in Scheme}
    claims.append(Claim(f"{epochs[1]} epochs: all four worsen with depth", min(rises.values()) > 0, min(rises.values())))

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 3, sharey=True)
        views = [("depth", epochs[0]), ("depth", epochs[1]), ("width", epochs[1])]
        for axes, (panel, epoch) in zip(panels, views, strict=True):
            for scheme in Scheme:
                chosen = _select(rows, panel=panel, scheme=str(scheme), epoch=epoch)
                axes.errorbar([row[panel] for row in chosen], [row["kl"] for row in chosen],
                              [row["spread"] for row in chosen], fmt="o-", ms=3, color=_COLOURS[scheme],
                              label=str(scheme))  # fmt: skip
            axes.set(yscale="log", xlabel=panel, title=f"{epoch} epochs")
        panels[2].set_xscale("log")
        panels[0].set_ylabel("KL of the worst neighbour")
        panels[0].legend(frameon=False, fontsize=8)

    return PaperResult(settings, rows, claims, draw, _notes(smoke))


def _curve(
    data: tuple[Any, ...],
    scheme: Scheme,
    width: int,
    depth: int,
    epochs: Sequence[int],
    step_size: float,
    runs: int,
    rng: np.random.Generator,
    *,
    panel: str = "epochs",
) -> list[dict[str, Any]]:
    from gratis.training.noisy_gd import DivergedError, noisy_descent_divergences

    X, y, X_new, y_new = data
    shape = layer_widths(X.shape[1], width, depth, 2)
    variances = layer_variances(scheme, shape)
    seed, diverged = int(rng.integers(2**31)), 0
    while True:
        try:
            found = noisy_descent_divergences(
                X, y, X_new, y_new, widths=shape, variances=variances, step_size=step_size, noise_std=NOISE_STD,
                steps=epochs[-1], runs=runs, seed=seed, checkpoints=epochs,
            )  # fmt: skip
            break
        except DivergedError as error:
            # What was measured before is kept; what came after has no value.
            diverged = error.step
            epochs = [epoch for epoch in epochs if epoch < diverged]
            if not epochs:
                return []
    constant = gradient_norm_constant(shape, variances)
    rows = []
    for place, epoch in enumerate(found.steps):
        divergences = found.all[:, place]
        estimate, worst = estimate_kl(divergences)
        bound = linearised_kl_upper_bound(
            constant, time=epoch * step_size, noise_std=NOISE_STD, n_records=len(X) - 1, n_outputs=2
        )
        rows.append(
            {
                "panel": panel, "diverged_at": diverged, "scheme": str(scheme), "width": width, "depth": depth, "step_size": step_size,
                "epoch": epoch, "kl": estimate.value, "low": estimate.low, "high": estimate.high,
                "confidence": estimate.confidence, "runs": runs,
                "spread": float(divergences[:, worst].std(ddof=1)) if runs > 1 else 0.0,
                "worst_is_added": bool(worst >= found.removed.shape[2]), "bound": bound.kl,
                "published_bound": bound.published,
                "total_variation": explain_kl(kl=estimate.value).total_variation,
            }  # fmt: skip
        )
    return rows


def _least_rise(values: Array) -> float:
    """Smallest step of ln KL along the axis; nothing is claimed of fewer than two points."""
    return float(np.min(np.diff(np.log(values)))) if len(values) > 1 else 0.0


def _select(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _data(smoke: bool, records: int) -> tuple[tuple[Any, ...], str]:
    from gratis.data.images import standardise_images

    if smoke:
        from sklearn.datasets import load_digits

        images, labels = load_digits(n_class=2, return_X_y=True)
        X, y = standardise_images(images), labels.astype(np.int64)
        new = slice(records, records + records // 5)
        return (X[:records], y[:records], X[new], y[new]), "scikit-learn digits 0 and 1"
    from gratis.data.cifar import load_cifar_pair

    cifar = load_cifar_pair()
    new = slice(records // 5)
    return (cifar.x_train[:records], cifar.y_train[:records], cifar.x_test[new], cifar.y_test[new]), (
        "CIFAR-10 airplanes and automobiles, standardised image by image"
    )


def _settings(data: tuple[Any, ...], name: str, runs: dict[float, int]) -> dict[str, Any]:
    return {
        "data": name, "records": len(data[0]), "addable_records": len(data[2]), "d": data[0].shape[1],
        "noise_std": NOISE_STD, "runs": {str(step): count for step, count in runs.items()},
        "estimate": "add/remove one record of a mean loss, worst neighbour; bound: replace-one, linearised network",
    }  # fmt: skip


def _notes(smoke: bool) -> tuple[str, ...]:
    first = "smoke scale: digits, a small network" if smoke else f"smaller than the paper's: {_COST}"
    return (
        first,
        "KL is not (ε, δ)-DP; the estimate is computed from gradients without noise and is a diagnostic",
        "the bound is proved for the linearised network: the estimates are of the trained network and may exceed it",
    )
