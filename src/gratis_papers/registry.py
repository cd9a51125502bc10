"""The figures of the papers: one program each, at two scales, with the papers' claims as inequalities."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from gratis.records.checks import check_count
from gratis.records.errors import GratisError

__all__ = ["FIGURES", "Claim", "Figure", "PaperResult", "run_figure"]

SCALES = ("smoke", "full")


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim as an inequality: whether it held, and the number that decided.

    An exact claim is decided by formulas and solvers alone, the same at every seed and on every machine; the others
    are about sampled runs, of which a smoke scale makes too few to decide.
    """

    claim: str
    holds: bool
    value: float
    exact: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"claim": self.claim, "holds": bool(self.holds), "value": float(self.value)}


@dataclass(slots=True)
class PaperResult:
    """What one program computed: settings, a table, the claims, and how to draw it.

    `draw` receives an empty matplotlib figure.
    """

    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    claims: list[Claim]
    draw: Callable[[Any], None]
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            **self.provenance,
            "settings": self.settings,
            "claims": [claim.to_json() for claim in self.claims],
            "notes": list(self.notes),
            "rows": self.rows,
        }

    def save(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write name.json and name.png into the folder; return their paths."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        folder.mkdir(parents=True, exist_ok=True)
        table, picture = folder / f"{name}.json", folder / f"{name}.png"
        table.write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        canvas = Canvas(figsize=(7, 4.5), layout="constrained")
        FigureCanvasAgg(canvas)
        self.draw(canvas)
        canvas.savefig(picture, dpi=120)
        return table, picture


@dataclass(frozen=True, slots=True)
class Figure:
    """Where a figure's program lives; imported only when it is run."""

    description: str
    module: str
    function: str

    def load(self) -> Callable[[str, np.random.Generator], PaperResult]:
        """Return the program."""
        program: Callable[[str, np.random.Generator], PaperResult]
        program = getattr(importlib.import_module(self.module), self.function)
        return program


_HERE = "gratis_papers."
_S0 = _HERE + "s0_random_features"
FIGURES: dict[str, Figure] = {
    "s0-fig1-left": Figure("MNIST: test accuracy against width", _HERE + "s0_mnist", "accuracy_against_width"),
    "s0-fig1-right": Figure("MNIST: test accuracy against n", _HERE + "s0_mnist", "accuracy_against_records"),
    "s0-fig2-1": Figure("random features: test loss against p", _S0, "loss_against_width"),
    "s0-fig2-2": Figure("random features: test loss against T", _S0, "loss_against_steps"),
    "s0-fig2-3": Figure("random features: test loss against ηTp/d", _S0, "loss_against_scaled_time"),
    "s0-fig2-4": Figure("random features: heat map of clip norm and time", _S0, "clip_and_time"),
    "s0-fig2-5": Figure("MNIST: heat map of clip norm and time", _HERE + "s0_mnist", "clip_and_time"),
    "s1-interp": Figure(
        "tangent kernel: λ_min and convergence against width", _HERE + "s1_interpolation", "interpolation"
    ),
    "s1-robust": Figure("sensitivity of random and tangent features against p", _HERE + "s1_robustness", "robustness"),
    "s1-recon": Figure(
        "reconstruction error against p/(nd), with pictures", _HERE + "s1_reconstruction", "reconstruction"
    ),
    "s1-ladder": Figure("noise that each composition theorem needs", _HERE + "s1_ladder", "composition_ladder"),
    "s2-fig1": Figure("one pass: runs against the ODE", _HERE + "s2_trajectories", "runs_against_ode"),
    "s2-fig2": Figure("one pass: scaling exponents, small β", _HERE + "s2_scaling", "exponents_of_flat_spectra"),
    "s2-fig3": Figure("one pass: scaling exponents, large β", _HERE + "s2_scaling", "exponents_of_steep_spectra"),
    "s2-fig4": Figure("one pass: heat map of rate and clip, synthetic rows", _HERE + "s2_heat_maps", "synthetic_map"),
    "s2-fig5": Figure("one pass: heat map of rate and clip, MNIST 1 against 7", _HERE + "s2_heat_maps", "digits_map"),
    "s2-fig6": Figure("one pass: heat map of rate and clip, California", _HERE + "s2_heat_maps", "housing_map"),
    "s2-fig7": Figure(
        "one pass: schedules against the budget, synthetic rows", _HERE + "s2_schedules", "schedules_on_synthetic_rows"
    ),
    "s2-fig8": Figure(
        "one pass: schedules against the budget, MNIST and California", _HERE + "s2_schedules", "schedules_on_tables"
    ),
    "s3-fig1": Figure("KL loss against epochs", _HERE + "s3_divergence", "divergence_against_epochs"),
    "s3-fig2": Figure("KL loss against depth and width", _HERE + "s3_divergence", "divergence_against_shape"),
    "s3-tab1": Figure("gradient norms of four initializations", _HERE + "s3_initialization", "table_one"),
    "s4-fig1": Figure("private geometric median against dimension", _HERE + "s4_dimension", "loss_against_dimension"),
    "s4-fig2": Figure("gradient spectrum and subspace re-training", _HERE + "s4_spectrum", "gradient_spectrum"),
    "s1-stairs": Figure("staircase of kernel regression", _HERE + "s1_staircase", "kernel_staircase"),
}


def run_figure(name: str, scale: str = "smoke", *, seed: int = 0) -> PaperResult:
    """Run one program; the result carries figure, scale, seed, versions and time.

    >>> run_figure("s9-fig1")
    Traceback (most recent call last):
    ...
    gratis.records.errors.GratisError: unknown figure 's9-fig1'; `gratis papers list` shows all
    """
    if name not in FIGURES:
        raise GratisError(f"unknown figure {name!r}; `gratis papers list` shows all")
    if scale not in SCALES:
        raise GratisError(f"unknown scale {scale!r}; expected 'smoke' or 'full'")
    seed = check_count("seed", seed, minimum=0)
    start = perf_counter()
    result = FIGURES[name].load()(scale, np.random.default_rng(seed))
    result.provenance = {
        "figure": name,
        "scale": scale,
        "seed": seed,
        "seconds": round(perf_counter() - start, 1),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
    return result
