"""S2, Figure 1: runs of one private pass beside the deterministic equivalent, from a small to a large dimension.

γ = d/n and ρ fixed, replace-one; Σ isotropic and of density ∝ λ^{−β}; each schedule at its best rate and clip level.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from gratis.accounting import least_noise
from gratis.planning.one_pass.prediction import OnePassProblem, predict_one_pass
from gratis.planning.one_pass.schedule_blocks import block_sequences
from gratis.planning.one_pass.schedule_optimisation import Family, optimise_schedule
from gratis.planning.one_pass.schedules import Schedule
from gratis.planning.one_pass.spectra import ExplicitSpectrum, parse_spectrum
from gratis.records.events import OnePassIteration
from gratis.records.sequences import Runs
from gratis_papers.one_pass_runs import simulate_one_pass
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s2_drawing import COLOURS, INK, plain_logarithms
from gratis_papers.sweeps import sweep

__all__ = ["pass_event", "runs_against_ode"]

GAMMA, RHO, LABEL_NOISE = 0.05, 1.0, 0.25
SPECTRA = {"isotropic": "Σ = I", "power:0.3": "power law, β = 0.3"}
SCHEDULES = {"poly:0": "α = 0", "poly:0.5": "α = ½", "harmonic": "harmonic"}
_NARROW, _WIDE = "#d99a2b", "#2a7f9e"


def pass_event(
    schedule: Schedule, n: int, dimension: int, problem: OnePassProblem, *, max_blocks: int = 1024
) -> OnePassIteration:
    """The pass with rates and clips constant on blocks of rows and the least noise at their ends."""
    blocks = block_sequences(schedule, n, dimension=dimension, max_blocks=max_blocks)
    noise = np.zeros(n)
    noise[np.cumsum(blocks.lengths) - 1] = least_noise(
        blocks.products, rho=problem.rho, neighbouring=problem.neighbouring
    )
    return OnePassIteration(
        step_sizes=Runs.of(np.repeat(blocks.step_sizes, blocks.lengths)),
        clip_norms=Runs.of(np.repeat(blocks.clip_norms, blocks.lengths)),
        noise_stds=Runs.of(noise),
        neighbouring=problem.neighbouring,
    )


def compare_with_ode(
    spectrum: str, schedule: str, dimension: int, runs: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Risks of many runs at the solver's times, their distance from the ODE and the jump of the last step."""
    law = parse_spectrum(spectrum)
    problem = OnePassProblem(gamma=GAMMA, rho=RHO, label_noise_variance=LABEL_NOISE, spectrum=law)
    best = optimise_schedule(problem, Family.parse(schedule)).schedule
    n = round(dimension / GAMMA)
    # The ODE of this very Σ: the distance is then that of the runs, not of d eigenvalues from their law.
    eigenvalues, energies = law.eigenvalues(dimension), law.signal_energies(dimension)
    exact = OnePassProblem(
        gamma=dimension / n,
        rho=RHO,
        label_noise_variance=LABEL_NOISE,
        spectrum=ExplicitSpectrum(tuple(eigenvalues.tolist()), tuple(energies.tolist())),
    )
    ode = predict_one_pass(exact, best, tolerance=1e-7)
    steps = np.rint(ode.times * n).astype(int)
    inside = np.append(np.diff(steps) > 0, True) & (steps < n)
    record = [*steps[inside].tolist(), n - 1, n] if steps[inside][-1] < n - 1 else [*steps[inside].tolist(), n]
    risks = simulate_one_pass(
        [pass_event(best, n, dimension, exact, max_blocks=n)],
        eigenvalues=eigenvalues,
        target=np.sqrt(energies),
        label_noise_variance=LABEL_NOISE,
        repetitions=runs,
        record_steps=record,
        rng=rng,
    )[0]
    path = risks[:, : int(inside.sum())]
    sup = np.abs(path - ode.excess_risk[inside]).max(axis=1)
    jumps = risks[:, -1] - risks[:, -2]
    return {
        "n": n,
        "times": ode.times[inside].tolist(),
        "ode": ode.excess_risk[inside].tolist(),
        "ode_end": [float(ode.excess_risk[-1]), ode.final_excess_risk],
        "low": np.quantile(path, 0.1, axis=0).tolist(),
        "high": np.quantile(path, 0.9, axis=0).tolist(),
        "one_run": path[0].tolist(),
        "sup": float(sup.mean()),
        "sup_error": float(sup.std(ddof=1) / math.sqrt(runs)),
        "jump": float(jumps.mean()),
        "jump_error": float(jumps.std(ddof=1) / math.sqrt(runs)),
        "jump_formula": float(exact.noise_scale * best.product(1.0) ** 2),
        "final": float(risks[:, -1].mean()),
        "final_error": float(risks[:, -1].std(ddof=1) / math.sqrt(runs)),
    }


def runs_against_ode(scale: str, rng: np.random.Generator) -> PaperResult:
    """Sup distance of runs from the ODE against n, for two covariances and three schedules."""
    full = scale == "full"
    dimensions = (50, 100, 200, 400, 1000) if full else (30, 120)
    runs = 200 if full else 120
    settings = [
        {"spectrum": spectrum, "schedule": schedule, "dimension": d, "runs": runs}
        for spectrum, schedule, d in product(SPECTRA, SCHEDULES, dimensions)
    ]
    found = sweep(compare_with_ode, settings, seed=int(rng.integers(2**62)))
    rows = [setting | result for setting, result in zip(settings, found, strict=True)]
    claims = []
    for spectrum, schedule in product(SPECTRA, SCHEDULES):
        chosen = [row for row in rows if (row["spectrum"], row["schedule"]) == (spectrum, schedule)]
        slope = float(np.polyfit(np.log([r["n"] for r in chosen]), np.log([r["sup"] for r in chosen]), 1)[0])
        claims.append(
            Claim(f"sup distance falls like n^(-1/2), slope within .1 ({spectrum}, {schedule})",
                  abs(slope + 0.5) < 0.1, slope)
        )  # fmt: skip
    for spectrum in SPECTRA:
        chosen = [row for row in rows if (row["spectrum"], row["schedule"]) == (spectrum, "poly:0")]
        # The last step also holds one row's descent, of order 1/n.
        worst = max(
            abs(row["jump"] - row["jump_formula"]) / (3 * row["jump_error"] + 2 / row["n"] * row["jump_formula"])
            for row in chosen
        )
        claims.append(
            Claim(f"α = 0: the last step jumps by (κ²/2)γ²c²η₀²/ρ², within 3 standard errors ({spectrum})",
                  worst < 1, chosen[-1]["jump"] / chosen[-1]["jump_formula"])
        )  # fmt: skip
    largest = [row for row in rows if row["dimension"] == dimensions[-1]]
    relative = max(abs(row["final"] / row["ode_end"][1] - 1) for row in largest)
    claims.append(
        Claim(f"at d = {dimensions[-1]} the mean final risk is within 3 % of the ODE's", relative < 0.03, relative)
    )

    def draw(figure: Any) -> None:
        figure.set_size_inches(12.5, 6.2)
        panels = figure.subplots(len(SPECTRA), len(SCHEDULES) + 1)
        for line, (spectrum, title) in zip(panels, SPECTRA.items(), strict=True):
            for axes, (schedule, name) in zip(line, SCHEDULES.items(), strict=False):
                chosen = [row for row in rows if (row["spectrum"], row["schedule"]) == (spectrum, schedule)]
                _draw_paths(axes, chosen[0], chosen[-1])
                axes.set_title(f"{title}, {name}")
                counts, sups = ([row[key] for row in chosen] for key in ("n", "sup"))
                line[-1].plot(counts, sups, "o-", ms=4, color=COLOURS[schedule], label=name)
            guide = np.array([counts[0], counts[-1]])
            line[-1].plot(guide, 0.4 / np.sqrt(guide), "--", color="grey", label="slope −½")
            line[-1].set_title("mean sup distance from the ODE")
            line[-1].legend()
            plain_logarithms(line[-1], dense=True)
            line[0].set_ylabel("excess risk")
        for axes in panels[-1, :-1]:
            axes.set_xlabel("share of rows used, t")
        panels[-1, -1].set_xlabel("rows n")
        panels[0, 0].legend(loc="upper right")

    shown = {"gamma": GAMMA, "rho": RHO, "label_noise_variance": LABEL_NOISE, "signal_variance": 1.0,
             "neighbouring": "replace-one", "dimensions": list(dimensions), "runs": runs}  # fmt: skip
    notes = (
        "rate and clip of each schedule are the best of its family by the ODE; the ODE uses the d eigenvalues of Σ",
        "the distance is taken at the solver's times before the last step; bands hold 80 % of the runs",
    )
    return PaperResult(shown, rows, claims, draw, notes)


def _draw_paths(axes: Any, narrow: dict[str, Any], wide: dict[str, Any]) -> None:
    for row, colour in ((narrow, _NARROW), (wide, _WIDE)):
        times, (low, high) = _smooth(row["times"], row["low"], row["high"])
        axes.fill_between(
            times, low, high, color=colour, alpha=0.28, lw=0, label=f"80 % of runs, d = {row['dimension']}"
        )
        axes.plot(row["times"], row["one_run"], color=colour, lw=0.9)
        axes.errorbar(1.05, row["final"], 3 * row["final_error"], fmt="o", ms=4, color=colour)
    times, (path,) = _smooth([*wide["times"], 1.0], [*wide["ode"], wide["ode_end"][0]])
    axes.plot(times, path, color=INK, lw=1.3, label="ODE")
    axes.plot([1.0, 1.05], wide["ode_end"], ":", color=INK, lw=1.3, label="last step (drawn at 1.05)")
    axes.set_xlim(0, 1.09)
    plain_logarithms(axes, "y", dense=True)


def _smooth(times: list[float], *paths: list[float]) -> tuple[Any, list[Any]]:
    """Curves through the points for the eye, monotone between them."""
    from scipy.interpolate import PchipInterpolator

    fine = np.linspace(times[0], times[-1], 200)
    return fine, [np.exp(PchipInterpolator(times, np.log(path))(fine)) for path in paths]
