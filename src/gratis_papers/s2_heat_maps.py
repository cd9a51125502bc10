"""S2, Figures 4 to 6: the final risk over learning rate η₀ and clip level c at a fixed budget.

η̃ = η₀(1−t)^α with α = 0 (output perturbation) and ½ (constant noise), replace-one, least noise, capped steps
(docs/theory/one-pass.md, statement 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.prediction import OnePassProblem, predict_final_risks
from gratis.planning.one_pass.schedules import Polynomial
from gratis.planning.one_pass.spectra import PowerLawSpectrum
from gratis_papers.one_pass_runs import simulate_one_pass
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s2_drawing import cell_edges, plain_logarithms
from gratis_papers.s2_public_data import data_is_absent, load_task, run_passes
from gratis_papers.s2_trajectories import pass_event
from gratis_papers.sweeps import sweep

__all__ = ["digits_map", "housing_map", "synthetic_map"]

Array = NDArray[np.float64]
ALPHAS = (0.0, 0.5)
TITLES = {0.0: "α = 0 (output perturbation)", 0.5: "α = ½ (constant noise)"}
BETA, LABEL_NOISE = 0.3, 0.25


def _problem(gamma: float, rho: float) -> OnePassProblem:
    return OnePassProblem(gamma=gamma, rho=rho, label_noise_variance=LABEL_NOISE, spectrum=PowerLawSpectrum(BETA))


def simulated_line(
    alpha: float, clip: float, rates: Sequence[float], n: int, d: int, rho: float, runs: int, rng: np.random.Generator
) -> list[float]:
    """Mean final excess risk at one clip level for each rate: runs on synthetic data."""
    problem = _problem(d / n, rho)
    spectrum = PowerLawSpectrum(BETA)
    risks = simulate_one_pass(
        [pass_event(Polynomial(alpha, rate, clip), n, d, problem) for rate in rates],
        eigenvalues=spectrum.eigenvalues(d),
        target=np.sqrt(spectrum.signal_energies(d)),
        label_noise_variance=LABEL_NOISE,
        repetitions=runs,
        record_steps=[n],
        rng=rng,
    )
    return [float(value) for value in risks[:, :, 0].mean(axis=1)]


def synthetic_map(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 4: power-law data, runs beside the deterministic equivalent."""
    n, d, cells, runs = (20_000, 200, 20, 8) if scale == "full" else (2000, 20, 9, 12)
    rho, gamma = 0.5, d / n
    rates, clips = np.geomspace(0.5, 400, cells), np.geomspace(0.02, 10, cells)
    settings = [
        {"alpha": alpha, "clip": float(c), "rates": rates.tolist(), "n": n, "d": d, "rho": rho, "runs": runs}
        for alpha in ALPHAS
        for c in clips
    ]
    lines = sweep(simulated_line, settings, seed=int(rng.integers(2**62)))
    measured = dict(zip(ALPHAS, np.array(lines).reshape(len(ALPHAS), cells, cells), strict=True))
    predicted = {
        alpha: predict_final_risks(
            [_problem(gamma, rho)], [Polynomial(alpha, float(r), float(c)) for c in clips for r in rates]
        ).reshape(cells, cells)
        for alpha in ALPHAS
    }
    claims = []
    for alpha in ALPHAS:
        claims += _map_claims(measured[alpha], rates, clips, 2 / gamma, alpha, noise_floor=0.0)
        inside = rates < 1 / gamma
        error = float(np.median(np.abs(measured[alpha] / predicted[alpha] - 1)[:, inside]))
        claims.append(
            Claim(f"the ODE predicts the map within 5 % (median, rates below half the cap; α = {alpha:g})",
                  error < 0.05, error)
        )  # fmt: skip
    rows = [
        {"alpha": a, "clip": float(c), "rate": float(r), "risk": float(measured[a][i, j]),
         "ode": float(predicted[a][i, j])}
        for a in ALPHAS for i, c in enumerate(clips) for j, r in enumerate(rates)
    ]  # fmt: skip

    def draw(figure: Any) -> None:
        maps = [(f"{TITLES[a]}: runs", measured[a]) for a in ALPHAS]
        maps += [(f"{TITLES[a]}: ODE", predicted[a]) for a in ALPHAS]
        _draw_maps(figure, maps, rates, clips, 2 / gamma, "excess risk")

    shown = {"n": n, "d": d, "rho": rho, "beta": BETA, "label_noise_variance": LABEL_NOISE, "runs": runs,
             "cells": cells, "signal_variance": 1.0, "neighbouring": "replace-one"}  # fmt: skip
    notes = ("synthetic Gaussian rows with a power-law covariance; predicting the mean has excess risk ½",)
    return PaperResult(shown, rows, claims, draw, notes)


def table_map(
    task: str, shipped: bool, alpha: float, rates: Sequence[float], clips: Sequence[float], rho: float,
    repetition: int, rng: np.random.Generator,
) -> list[float]:  # fmt: skip
    """Test losses of one pass over a public table for each pair (rate, clip), in the order given."""
    data = load_task(task, shipped=shipped)
    n = len(data.X)
    shape = (1 - np.arange(1, n + 1) / n) ** alpha
    which = np.zeros(len(rates), dtype=np.int64)
    thetas = run_passes(
        data.X, data.y, shapes=shape[None], which=which, rates=np.asarray(rates), clip_levels=np.asarray(clips),
        rho=rho, rng=rng,
    )  # fmt: skip
    return [float(loss) for loss in data.losses(thetas)]


def _table_figure(scale: str, rng: np.random.Generator, task: str, budgets: tuple[float, float]) -> PaperResult:
    """Test loss over (η₀, c) on a public table, and at the point planned from its public rows alone."""
    full = scale == "full"
    shipped = not full and data_is_absent()
    data = load_task(task, shipped=shipped)
    n, d = data.X.shape
    rho = budgets[1] if shipped else budgets[0]
    cells, repetitions = (20, 10) if full else (13, 8)
    rates, clips = np.geomspace(0.05, 4 * n / d if full else 300, cells), np.geomspace(0.01, 20, cells)
    grid_clips, grid_rates = (axis.ravel() for axis in np.meshgrid(clips, rates, indexing="ij"))
    plans = {a: data.planned(rho, f"poly:{a:g}") for a in ALPHAS}
    # Three digits of what an optimiser found are the same on every machine, and with them the stream of the sweep.
    planned = {a: (_three_digits(plan.rate(0.0)), _three_digits(plan.clip(0.0))) for a, plan in plans.items()}
    settings = [
        {"task": task, "shipped": shipped, "alpha": a, "rates": [*grid_rates.tolist(), planned[a][0]],
         "clips": [*grid_clips.tolist(), planned[a][1]], "rho": rho, "repetition": r}
        for a in ALPHAS for r in range(repetitions)
    ]  # fmt: skip
    losses = np.array(sweep(table_map, settings, seed=int(rng.integers(2**62)))).reshape(len(ALPHAS), repetitions, -1)
    means = dict(zip(ALPHAS, losses.mean(axis=1), strict=True))
    maps = {a: means[a][:-1].reshape(cells, cells) for a in ALPHAS}
    floor = float(np.square(data.X_test @ np.linalg.lstsq(data.X, data.y, rcond=None)[0] - data.y_test).mean())
    claims = []
    for a in ALPHAS:
        claims += _map_claims(maps[a], rates, clips, 2 * n / d, a, noise_floor=min(floor, 0.95 * float(maps[a].min())))
        regret = float(means[a][-1] - maps[a].min())
        claims.append(
            Claim(f"ours: the point planned from public rows alone loses at most .05 against the best cell (α = {a:g})",
                  regret < 0.05, regret)
        )  # fmt: skip
    rows = [
        {"alpha": a, "clip": float(c), "rate": float(r), "test_loss": float(maps[a][i, j])}
        for a in ALPHAS for i, c in enumerate(clips) for j, r in enumerate(rates)
    ]  # fmt: skip
    rows += [
        {"alpha": a, "clip": planned[a][1], "rate": planned[a][0], "test_loss": float(means[a][-1]), "planned": True}
        for a in ALPHAS
    ]

    def draw(figure: Any) -> None:
        _draw_maps(figure, [(TITLES[a], maps[a]) for a in ALPHAS], rates, clips, 2 * n / d, "test loss", planned, 2.0)
        figure.suptitle(f"{data.name}: n = {n}, d = {d}, ρ = {rho:g}")

    shown = {"n": n, "d": d, "rho": rho, "repetitions": repetitions, "cells": cells, "neighbouring": "replace-one",
             "least_squares_loss": floor}  # fmt: skip
    notes = (
        data.note,
        "mean squared error on test rows, predicting the mean has 1; every repetition counts (the cap on steps keeps "
        "all of them stable; the paper left some seeds out)",
        "cells are compared on test rows: a heat map is a look at them, not a private choice",
        "planned: what `gratis plan` would take in this family from n, d and the public rows' spectrum: least worst "
        "regret over R² and over θ* spread over all eigenvectors or along the large ones",
    )
    return PaperResult(shown, rows, claims, draw, notes)


def _three_digits(value: Any) -> float:
    return float(f"{float(value):.3g}")


def digits_map(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 5: MNIST, 1 against 7."""
    return _table_figure(scale, rng, "digits", (1.0, 4.0))


def housing_map(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 6: California housing."""
    return _table_figure(scale, rng, "housing", (0.1, 2.0))


def _map_claims(
    losses: Array, rates: Array, clips: Array, cap: float, alpha: float, *, noise_floor: float
) -> list[Claim]:
    """S2's three statements about a map (clips, rates); factors are of the loss above the floor.

    The third needs three clip levels whose best rate lies below the cap; few rows (γ near 1) leave no room for it.
    """
    excess = losses - noise_floor
    row, column = np.unravel_index(int(np.argmin(excess)), excess.shape)
    best, product = float(excess[row, column]), rates[column] * clips[row]
    largest = float(excess[-1].min()) / best
    travel = np.outer(clips, rates)
    too_far = float(excess[travel > 30 * product].min()) / best
    places = np.array([_vertex(np.log(rates), np.log(np.maximum(line, 1e-12))) for line in excess])
    # The valley is a statement about clips below the residuals' size, where the best rate lies below the cap.
    small = (clips <= 0.5) & (np.exp(places) < cap / 2) & (np.exp(places) < rates[-2])
    tail = f"(α = {alpha:g})"
    claims = [
        Claim(f"c ≫ 1 is worse: the best risk at c = {clips[-1]:g} is at least 1.1 times the best of all {tail}",
              largest > 1.1, largest),
        Claim(f"η₀c too large is worse: beyond 30 times its best value every risk is at least doubled {tail}",
              too_far > 2, too_far),
    ]  # fmt: skip
    if small.sum() > 2:
        slope = float(np.polyfit(np.log(clips[small]), places[small], 1)[0])
        words = "the valley runs along η₀c = const: slope of log η₀ against log c within .2 of −1 for c ≤ ½"
        claims.append(Claim(f"{words} {tail}", abs(slope + 1) < 0.2, slope))
    return claims


def _vertex(x: Array, y: Array) -> float:
    """Position of the least value, by a parabola through the best point and its neighbours."""
    best = int(np.clip(np.argmin(y), 1, len(x) - 2))
    curvature, slope, _ = np.polyfit(x[best - 1 : best + 2], y[best - 1 : best + 2], 2)
    if curvature <= 0:
        return float(x[np.argmin(y)])
    return float(np.clip(-slope / (2 * curvature), x[best - 1], x[best + 1]))


def _draw_maps(
    figure: Any,
    maps: list[tuple[str, Array]],
    rates: Array,
    clips: Array,
    cap: float,
    label: str,
    planned: dict[float, tuple[float, float]] | None = None,
    most: float = math.inf,
) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator

    lines = (len(maps) + 1) // 2
    figure.set_size_inches(10.2, 4.0 * lines + 0.6)
    panels = figure.subplots(lines, 2, sharex=True, sharey=True, squeeze=False).ravel()
    least = min(float(values.min()) for _, values in maps)
    most = min(max(float(values.max()) for _, values in maps), 20 * least, most)
    points = list((planned or {}).values())
    across, up = cell_edges(rates), cell_edges(clips)
    for index, (axes, (title, values)) in enumerate(zip(panels, maps, strict=True)):
        mesh = axes.pcolormesh(across, up, values, norm=LogNorm(least, most), cmap="viridis_r", rasterized=True)
        row, column = np.unravel_index(int(np.argmin(values)), values.shape)
        valley = np.array([math.exp(_vertex(np.log(rates), np.log(line))) for line in values])
        seen = (valley > rates[0]) & (valley < rates[-1])
        axes.plot(valley[seen], clips[seen], "o", ms=3, color="white", label="best rate for each clip")
        axes.plot(rates, rates[column] * clips[row] / rates, "--", lw=1.2, color="white", label="η₀c = const")
        axes.plot(rates[column], clips[row], "*", ms=15, color="#ffd34d", mec="black", label="best cell")
        if points:
            axes.plot(*points[index], "D", ms=8, color="#ee8a73", mec="black", label="planned from public rows")
        if cap < across[-1]:
            axes.axvline(cap, color="black", lw=0.9, ls=":", label="cap 2/γ")
        plain_logarithms(axes)
        axes.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
        axes.set_title(f"{title}, best {values.min():.3f}")
    for axes in panels[::2]:
        axes.set_ylabel("clip level c")
    for axes in panels[-2:]:
        axes.set_xlabel("initial rate η₀")
    legend = panels[0].legend(loc="lower left", frameon=True, facecolor="#2b3240", framealpha=0.75, edgecolor="none")
    for words in legend.get_texts():
        words.set_color("white")
    bar = figure.colorbar(mesh, ax=list(panels), label=f"{label} ({most:.2g} and more in the darkest)")
    bar.locator, bar.formatter = (
        LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)),
        FuncFormatter(lambda value, _: f"{value:g}"),
    )
    bar.minorticks_off()
    bar.update_ticks()
