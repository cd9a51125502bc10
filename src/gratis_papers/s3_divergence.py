"""S3, Figures 1 and 2: KL of noisy training against epochs, depth and width.

Noisy gradient descent on ReLU networks; KL of every neighbour (each record removed, each test record added), mean
over runs, worst neighbour. The linearised bound is drawn beside it: it is a replace-one bound for another model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.planning.bounds.initialization import (
    Scheme,
    gradient_norm_constant,
    layer_variances,
    layer_widths,
    linearised_kl_upper_bound,
)
from gratis_papers.kl_divergence import estimate_kl, explain_kl
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s3_initialization import COLOURS

__all__ = ["divergence_against_epochs", "divergence_against_shape"]

NOISE_STD = 0.01
_COST = (
    "the paper's scale (width 1024, 10,000 + 2,000 images, 6 runs, 50 epochs, four initializations) is 1200 steps of "
    "about 7 s on one free core (benchmarks/kl_estimation.py)"
)

Row = dict[str, Any]


def divergence_against_epochs(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 1: KL of the worst neighbour while training goes on, at both step sizes that the paper names."""
    smoke = scale == "smoke"
    width, depth, records = (64, 4, 100) if smoke else (256, 10, 600)
    epochs = (1, 2, 5, 10, 20) if smoke else (1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
    runs = {0.01: 3 if smoke else 6, 0.001: 2 if smoke else 3}
    data, name = _data(smoke, records)
    rows: list[Row] = []
    for step_size, count in runs.items():
        for scheme in Scheme:
            rows += _curve(data, scheme, width, depth, epochs, step_size, count, rng)
    settings = _settings(data, name, runs) | {"width": width, "depth": depth, "epochs": list(epochs)}
    return PaperResult(
        settings, rows, _epoch_claims(rows, epochs), lambda figure: _draw_epochs(figure, rows), _notes(smoke)
    )


def _epoch_claims(rows: list[Row], epochs: Sequence[int]) -> list[Claim]:
    claims = []
    last = epochs[-1]
    for step in sorted({row["step_size"] for row in rows}, reverse=True):
        kl = {s: {r["epoch"]: r["kl"] for r in _select(rows, step_size=step, scheme=str(s))} for s in Scheme}
        for scheme, values in kl.items():
            if last not in values:
                reached = max(values, default=0)
                claims.append(Claim(f"step {step}: {scheme} trains to the end (last finite epoch)", False, reached))
                continue
            bend = values[10] / (10 * values[1])
            words = f"step {step}: {scheme} grows linearly up to epoch 10 (KL(10)/(10·KL(1)) between ½ and 2)"
            claims.append(Claim(words, 0.5 < bend < 2, bend))
            ratio = values[last] / values[10] / (last / 10)
            claims.append(Claim(f"step {step}: {scheme} grows faster than linearly later", ratio > 1, ratio))
        low = max(kl[Scheme.LECUN][10], kl[Scheme.XAVIER][10])
        gap = min(kl[s].get(10, math.inf) for s in (Scheme.HE, Scheme.NTK)) / low
        words = f"step {step}: LeCun and Xavier at least 10 times below He and NTK at epoch 10"
        claims.append(Claim(words, gap > 10, gap))
    return claims


def _draw_epochs(figure: Any, rows: list[Row]) -> None:
    steps = sorted({row["step_size"] for row in rows}, reverse=True)
    panels = figure.subplots(1, len(steps), sharey=True)
    # A diverging run has no upper end: what lies far above every bound is cut off.
    top = 10 * max(row["bound"] for row in rows)
    for axes, step in zip(panels, steps, strict=True):
        for scheme in Scheme:
            chosen = _select(rows, step_size=step, scheme=str(scheme))
            x = [row["epoch"] for row in chosen]
            kl, spread = (np.array([row[key] for row in chosen]) for key in ("kl", "spread"))
            axes.plot(x, kl, "o-", ms=2.5, color=COLOURS[scheme], label=str(scheme))
            axes.fill_between(x, np.maximum(kl - spread, kl / 10), kl + spread, color=COLOURS[scheme], alpha=0.2)
            axes.plot(x, [row["bound"] for row in chosen], "--", lw=0.8, color=COLOURS[scheme])
        runs = _select(rows, step_size=step)[0]["runs"]
        axes.set(xscale="log", yscale="log", xlabel="epochs", title=f"step {step}, {runs} runs")
        axes.set_ylim(0.3 * min(row["kl"] for row in rows), top)
    panels[0].set_ylabel("KL of the worst neighbour (dashed: linearised bound)")
    panels[-1].legend(frameon=False, fontsize=8)


def divergence_against_shape(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 2: KL of the worst neighbour against depth (20 and 50 epochs) and against width (50 epochs)."""
    smoke = scale == "smoke"
    depths = (2, 4, 6) if smoke else (2, 4, 6, 8, 10, 14)
    widths = (32, 64, 128) if smoke else (64, 128, 256, 512)
    fixed_width, fixed_depth, records, runs = (64, 4, 80, 2) if smoke else (128, 10, 400, 6)
    epochs = (5, 20) if smoke else (20, 50)
    data, name = _data(smoke, records)
    rows: list[Row] = []
    for scheme in Scheme:
        for depth in depths:
            rows += _curve(data, scheme, fixed_width, depth, epochs, 0.01, runs, rng, panel="depth")
        for width in widths:
            rows += _curve(data, scheme, width, fixed_depth, epochs[-1:], 0.01, runs, rng, panel="width")
    settings = _settings(data, name, {0.01: runs})
    settings |= {"depths": list(depths), "widths": list(widths), "fixed_width": fixed_width, "fixed_depth": fixed_depth}
    claims = _shape_claims(rows, epochs, len(depths), len(widths))
    return PaperResult(settings, rows, claims, lambda figure: _draw_shape(figure, rows, epochs), _notes(smoke))


def _shape_claims(rows: list[Row], epochs: tuple[int, int], n_depths: int, n_widths: int) -> list[Claim]:
    early, late = epochs

    def kl(scheme: Scheme, panel: str, epoch: int) -> NDArray[np.float64]:
        return np.array([row["kl"] for row in _select(rows, panel=panel, scheme=str(scheme), epoch=epoch)])

    def worsens(scheme: Scheme, panel: str, epoch: int, expected: int) -> Claim:
        values = kl(scheme, panel, epoch)
        # Single steps are within the spread over initial weights: the ends are compared.
        rise = math.log(values[-1] / values[0]) if len(values) == expected else 0.0
        return Claim(f"{epoch} epochs: {scheme} worsens with {panel} (ln KL of last over first)", rise > 0, rise)

    claims = [worsens(scheme, "width", late, n_widths) for scheme in Scheme]
    for scheme in (Scheme.LECUN, Scheme.XAVIER):
        values = kl(scheme, "depth", early)
        ratio = float(values[-1] / values.max())
        claims.append(
            Claim(f"{early} epochs: {scheme} improves beyond some depth (last over largest)", ratio < 0.9, ratio)
        )
    claims.append(worsens(Scheme.HE, "depth", early, n_depths))
    claims += [worsens(scheme, "depth", late, n_depths) for scheme in Scheme]
    lost = 4 * (2 * n_depths + n_widths) - len(rows)
    claims.append(Claim("every network trains to the end (points lost to divergence)", lost == 0, lost))
    return claims


def _draw_shape(figure: Any, rows: list[Row], epochs: tuple[int, int]) -> None:
    panels = figure.subplots(1, 3, sharey=True)
    views = [("depth", epochs[0]), ("depth", epochs[1]), ("width", epochs[1])]
    for axes, (panel, epoch) in zip(panels, views, strict=True):
        for scheme in Scheme:
            chosen = _select(rows, panel=panel, scheme=str(scheme), epoch=epoch)
            x, y, spread = ([row[key] for row in chosen] for key in (panel, "kl", "spread"))
            axes.errorbar(x, y, spread, fmt="o-", ms=3, color=COLOURS[scheme], label=str(scheme))
        axes.set(yscale="log", xlabel=panel, title=f"{epoch} epochs")
    panels[0].set_ylim(0.3 * min(row["kl"] for row in rows), 10 * max(row["bound"] for row in rows))
    panels[2].set_xscale("log")
    shown = sorted({row["width"] for row in rows if row["panel"] == "width"})
    panels[2].set_xticks(shown, [str(width) for width in shown])
    panels[2].set_xticks([], minor=True)
    panels[0].set_ylabel("KL of the worst neighbour")
    panels[0].legend(frameon=False, fontsize=8)


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
) -> list[Row]:
    from gratis_papers.noisy_gd import DivergedError, noisy_descent_divergences

    X, y, X_new, y_new = data
    shape = layer_widths(X.shape[1], width, depth, 2)
    variances = layer_variances(scheme, shape)
    seed, diverged = int(rng.integers(2**31)), 0
    while True:
        try:
            found = noisy_descent_divergences(
                X,
                y,
                X_new,
                y_new,
                widths=shape,
                variances=variances,
                step_size=step_size,
                noise_std=NOISE_STD,
                steps=epochs[-1],
                runs=runs,
                seed=seed,
                checkpoints=epochs,
            )
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
                "panel": panel,
                "diverged_at": diverged,
                "scheme": str(scheme),
                "width": width,
                "depth": depth,
                "step_size": step_size,
                "epoch": epoch,
                "kl": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "confidence": estimate.confidence,
                "runs": runs,
                "spread": float(divergences[:, worst].std(ddof=1)) if runs > 1 else 0.0,
                "worst_is_added": bool(worst >= found.removed.shape[2]),
                "bound": bound.kl,
                "published_bound": bound.published,
                "total_variation": explain_kl(kl=estimate.value).total_variation,
            }
        )
    return rows


def _select(rows: list[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _data(smoke: bool, records: int) -> tuple[tuple[Any, ...], str]:
    from gratis_papers.images import standardise_images

    if smoke:
        from sklearn.datasets import load_digits

        images, labels = load_digits(n_class=2, return_X_y=True)
        X, y = standardise_images(images), labels.astype(np.int64)
        new = slice(records, records + records // 5)
        return (X[:records], y[:records], X[new], y[new]), "scikit-learn digits 0 and 1"
    from gratis_papers.cifar import load_cifar_pair

    cifar = load_cifar_pair()
    new = slice(records // 5)
    return (cifar.x_train[:records], cifar.y_train[:records], cifar.x_test[new], cifar.y_test[new]), (
        "CIFAR-10 airplanes and automobiles, standardised image by image"
    )


def _settings(data: tuple[Any, ...], name: str, runs: dict[float, int]) -> dict[str, Any]:
    return {
        "data": name,
        "records": len(data[0]),
        "addable_records": len(data[2]),
        "d": data[0].shape[1],
        "noise_std": NOISE_STD,
        "runs": {str(step): count for step, count in runs.items()},
        "estimate": "add/remove one record of a mean loss, worst neighbour; bound: replace-one, linearised network",
    }


def _notes(smoke: bool) -> tuple[str, ...]:
    first = "smoke scale: digits, a small network" if smoke else f"smaller than the paper's: {_COST}"
    return (
        first,
        "KL is not (ε, δ)-DP; the estimate is computed from gradients without noise and is a diagnostic",
        "the bound is proved for the linearised network: the estimates are of the trained network and may exceed it",
    )
