"""The figures of the papers: one program each, at two scales, with the papers' claims as inequalities."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis_papers.house_style import new_canvas
from gratis_papers.quotations import quote

__all__ = ["FIGURES", "Claim", "Figure", "PaperResult", "redraw", "run_figure"]

SCALES = ("smoke", "hour", "full")


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim as an inequality: whether it held, and the number that decided.

    An exact claim is decided by formulas and solvers alone, the same at every seed and on every machine; the others
    are about sampled runs, of which a smoke scale makes too few to decide. `words` is what the paper says, in its words
    (empty for a claim of our own). Claims are fixed before the full run; why one did not hold, and what a bound was
    before it was changed, stands in `gratis_papers.findings`.
    """

    claim: str
    holds: bool
    value: float
    exact: bool = False
    words: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"claim": self.claim, "words": self.words, "holds": bool(self.holds), "value": float(self.value)}


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
        folder.mkdir(parents=True, exist_ok=True)
        table, picture = folder / f"{name}.json", folder / f"{name}.png"
        table.write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        new_canvas(self.draw, settles_nothing=self.provenance.get("scale") == "smoke", path=picture)
        return table, picture


@dataclass(frozen=True, slots=True)
class Figure:
    """Where a figure's program lives; imported only when it is run.

    Every figure has the scales "smoke" (seconds) and "full"; one whose full scale takes a night has "hour" too.
    `drawing` and `judging` name functions of its module that draw a stored table, (figure, settings, rows), and decide
    its claims, (settings, rows): with them a picture changes its looks, or a table answers a further question, without
    a new run.
    """

    description: str
    module: str
    function: str
    scales: tuple[str, ...] = ("smoke", "full")
    drawing: str = ""
    judging: str = ""

    def load(self) -> Callable[[str, np.random.Generator], PaperResult]:
        """Return the program."""
        program: Callable[[str, np.random.Generator], PaperResult] = self.part(self.function)
        return program

    def part(self, name: str) -> Callable[..., Any]:
        """Return a function of the figure's module."""
        found: Callable[..., Any] = getattr(importlib.import_module(self.module), name)
        return found


_HERE = "gratis_papers."
_S0 = _HERE + "s0_random_features"
FIGURES: dict[str, Figure] = {
    "s0-fig1-left": Figure(
        "MNIST: test accuracy against width", _HERE + "s0_mnist", "accuracy_against_width", drawing="draw_widths"
    ),
    "s0-fig1-right": Figure(
        "MNIST: test accuracy against n", _HERE + "s0_mnist", "accuracy_against_records", drawing="draw_records"
    ),
    "s0-fig2-1": Figure("random features: test loss against p", _S0, "loss_against_width", drawing="draw_widths"),
    "s0-fig2-2": Figure("random features: test loss against T", _S0, "loss_against_steps", drawing="draw_steps"),
    "s0-fig2-3": Figure(
        "random features: test loss against ηTp/d", _S0, "loss_against_scaled_time", drawing="draw_scaled_time"
    ),
    "s0-fig2-4": Figure(
        "random features: heat map of clip norm and time", _S0, "clip_and_time", drawing="draw_regions"
    ),
    "s0-fig2-5": Figure(
        "MNIST: heat map of clip norm and time", _HERE + "s0_mnist", "clip_and_time", drawing="draw_regions"
    ),
    "s0-thm2": Figure(
        "random features: price of privacy against n (Theorem 2)",
        _HERE + "s0_theorem2",
        "price_against_records",
        drawing="draw_prices",
    ),
    "s0-event": Figure(
        "random features: is nothing clipped on the path? (event (15))",
        _HERE + "s0_event",
        "no_clipping_on_the_path",
        drawing="draw_paths",
        judging="judge_paths",
    ),
    "s1-interp": Figure(
        "tangent kernel: λ_min and convergence against width", _HERE + "s1_interpolation", "interpolation"
    ),
    "s1-robust": Figure(
        "sensitivity of random and tangent features against p",
        _HERE + "s1_robustness",
        "robustness",
        drawing="draw_sensitivity",
        judging="judge_sensitivity",
    ),
    "s1-recon": Figure(
        "reconstruction error against p/(nd), with pictures",
        _HERE + "s1_reconstruction",
        "reconstruction",
        drawing="draw_attacks",
        judging="judge_attacks",
    ),
    "s1-ladder": Figure("noise that each composition theorem needs", _HERE + "s1_ladder", "composition_ladder"),
    "s2-fig1": Figure("one pass: runs against the ODE", _HERE + "s2_trajectories", "runs_against_ode"),
    "s2-fig2": Figure("one pass: scaling exponents, small β", _HERE + "s2_scaling", "exponents_of_flat_spectra"),
    "s2-fig3": Figure("one pass: scaling exponents, large β", _HERE + "s2_scaling", "exponents_of_steep_spectra"),
    "s2-fig4": Figure("one pass: heat map of rate and clip, synthetic rows", _HERE + "s2_heat_maps", "synthetic_map"),
    "s2-fig5": Figure("one pass: heat map of rate and clip, MNIST 1 against 7", _HERE + "s2_heat_maps", "digits_map"),
    "s2-fig6": Figure("one pass: heat map of rate and clip, California", _HERE + "s2_heat_maps", "housing_map"),
    "s2-fig7": Figure(
        "one pass: schedules against the budget, synthetic rows",
        _HERE + "s2_schedules",
        "schedules_on_synthetic_rows",
        drawing="draw_synthetic",
    ),
    "s2-fig8": Figure(
        "one pass: schedules against the budget, MNIST and California",
        _HERE + "s2_schedules",
        "schedules_on_tables",
        drawing="draw_tables",
        judging="judge_tables",
    ),
    "s2-fig9": Figure("one pass: what clipping leaves, μ_c and ν_c", _HERE + "s2_curves", "clipping_curves"),
    "s2-fig11": Figure(
        "one pass: how Theorem 4 finds its exponent (supplement)", _HERE + "s2_curves", "exponents_of_the_proof"
    ),
    "s2-class": Figure(
        "one pass: classification beside its deterministic equivalent (ours)",
        _HERE + "s2_classification",
        "classification_runs_against_ode",
        drawing="draw_classification",
        judging="judge_classification",
    ),
    "s3-fig1": Figure(
        "KL loss against steps",
        _HERE + "s3_divergence",
        "divergence_against_steps",
        drawing="draw_steps",
        judging="judge_steps",
    ),
    "s3-size": Figure(
        "KL loss at the paper's own size",
        _HERE + "s3_own_size",
        "divergence_at_the_papers_size",
        drawing="draw_own_size",
        judging="judge_own_size",
    ),
    "s3-fig2": Figure(
        "KL loss against depth and width",
        _HERE + "s3_shape",
        "divergence_against_shape",
        drawing="draw_shapes",
        judging="judge_shapes",
    ),
    "s3-tab1": Figure("Table 1: four initializations", _HERE + "s3_initialization", "table_one"),
    "s3-bound": Figure("the linearised network under its KL bound", _HERE + "s3_bound", "linearised_under_its_bound"),
    "s4-fig1": Figure(
        "private geometric median against dimension",
        _HERE + "s4_dimension",
        "loss_against_dimension",
        drawing="draw_losses",
        judging="judge_losses",
    ),
    "s4-fig2": Figure(
        "gradient spectrum and subspace re-training",
        _HERE + "s4_spectrum",
        "gradient_spectrum",
        SCALES,
        drawing="draw_spectrum",
        judging="judge_spectrum",
    ),
    "s4-app": Figure(
        "gradient spectrum by iterations, gradients and window",
        _HERE + "s4_spectrum",
        "spectrum_robustness",
        SCALES,
        drawing="draw_robustness",
    ),
    "s4-linear": Figure(
        "gradient spectrum and subspaces of the linearised network",
        _HERE + "s4_linearised",
        "linearised_fine_tuning",
        drawing="draw_linearised",
        judging="judge_linearised",
    ),
    "s1-stairs": Figure(
        "staircase of kernel regression", _HERE + "s1_staircase", "kernel_staircase", drawing="draw_stairs"
    ),
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
    if scale not in FIGURES[name].scales:
        known = " or ".join(map(repr, FIGURES[name].scales))
        raise GratisError(f"unknown scale {scale!r} of {name}; expected {known}")
    seed = check_count("seed", seed, minimum=0)
    start = perf_counter()
    result = FIGURES[name].load()(scale, np.random.default_rng(seed))
    result.claims = _quoted(name, result.claims)
    result.provenance = {
        "figure": name,
        "scale": scale,
        "seed": seed,
        "seconds": round(perf_counter() - start, 1),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
    return result


def _quoted(name: str, claims: list[Claim]) -> list[Claim]:
    return [claim if claim.words else replace(claim, words=quote(name, claim.claim)) for claim in claims]


def redraw(path: Path) -> bool:
    """Draw the picture of a stored table again, and decide its claims again; False if its program cannot without a run.

    Rows, settings, notes and what is said of the run stay as they are.
    """
    stored = json.loads(path.read_text(encoding="utf-8"))
    figure = FIGURES.get(stored["figure"])
    if figure is None or not figure.drawing:
        return False
    settings, rows = stored["settings"], stored["rows"]
    if figure.judging:
        claims = _quoted(stored["figure"], figure.part(figure.judging)(settings, rows))
        stored["claims"] = [claim.to_json() for claim in claims]
        path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draw = figure.part(figure.drawing)
    new_canvas(lambda canvas: draw(canvas, settings, rows), settles_nothing=stored["scale"] == "smoke",
               path=path.with_suffix(".png"))  # fmt: skip
    return True
