"""S4, Figure 2 and Appendix B: spectrum of the gradients of private fine-tuning, and re-training in its top subspace.

Private runs keep their gradients before noise; others then train in the top k directions of these, and in random ones.
Smoke: a tiny transformer on scikit-learn's digits. Beyond: MiniLM on SST-2, at full scale with one long recorded run
("over-training"), in the hour with a short one. Both are public: spectra come from gradients before noise and
would have to be paid for otherwise.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gratis.numerics.subspace_iteration import leading_eigenpairs
from gratis.planning.bounds.effective_dimension import effective_dimension
from gratis.planning.bounds.gradient_spectrum import GradientSpectrum, fit_decay
from gratis.planning.bounds.restricted_lipschitz import LipschitzCoefficients
from gratis.records.budget import Budget
from gratis.records.neighbouring import Neighbouring
from gratis_papers.gradient_spectrum import LABEL
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s4_tasks import FineTuning, digits_task
from gratis_papers.subspace_training import PrivateSteps, fine_tuned, gram_of, random_directions, top_directions
from gratis_papers.sweeps import kept_in

__all__ = ["gradient_spectrum", "spectrum_robustness"]

EPSILON = 8.0
KS = {"smoke": (5, 20), "hour": (10, 20, 40), "full": (10, 20, 100)}
# Runs in all dimensions, and how many of them are recorded; runs in each subspace.
SEEDS = {"smoke": 1, "hour": 1, "full": 5}
RECORDED = {"smoke": 1, "hour": 1, "full": 1}
RETRAINED = {"smoke": 1, "hour": 1, "full": 5}
# Largest loss of accuracy that still counts as "the original performance", fixed before the run.
ALMOST = 0.01
DECAYS = "Singular values decay rapidly with their rank."
SUFFICES = (
    "the original performance can be attained by optimizing within a subspace of only dimension k = 100, suggesting "
    "that most of the dimensions of the 7 million parameter vector encode a limited learning signal"
)
REACHES = "DP-SGD obtains a dev set accuracy approximately of 90% and 92%, privately and non-privately, respectively."
ITERATIONS = (
    "the linear fit to the top 500 eigenvalues remains stable across different number of orthogonal iterations T. "
    "Notably, T = 10 produces similar results as T = 100."
)
SAMPLES = (
    "while the slope and intercept of the fitted line in log-log space changes, the change is moderate. Notably, the "
    "decaying trend of the top eigenvalues remains stable."
)
LATE = (
    "while the slope and intercept of linear fits are slightly different in the new setup compared to the old setup "
    "[…], that the eigenvalues follow a rapidly decaying trend remains true under both setups."
)


@cache
def _task(scale: str, folder: Path) -> FineTuning:
    if scale == "smoke":
        return digits_task(EPSILON)
    from gratis_papers.minilm import sst2_task

    budget = Budget(epsilon=EPSILON, delta=67_349**-1.1, neighbouring=Neighbouring.ZERO_OUT)
    steps, recorded = {"hour": (50, 120), "full": (200, 500)}[scale]
    return sst2_task(
        batch=1000, steps=steps, recorded=recorded, head_records=67_349, budget=budget, folder=folder
    )  # fmt: skip


@contextmanager
def _folder(scale: str, rng: np.random.Generator) -> Iterator[tuple[Path, int]]:
    """Where runs of this scale are kept, beside the sweeps or until the end only; and the first of their seeds."""
    first = int(rng.integers(2**31))
    kept = kept_in(f"s4-{scale}-{first}")
    if kept is not None:
        yield kept, first
    else:
        with tempfile.TemporaryDirectory() as short:
            yield Path(short), first


def _gradients(scale: str, folder: Path) -> list[Path]:
    task = _task(scale, folder)
    return [folder / f"gradients-{task.label}-{task.recorded}-{place}.npy" for place in range(RECORDED[scale])]


def _recorded(scale: str, folder: Path, first: int, place: int) -> float:
    """Run a recorded private training in all dimensions, or find it; return its accuracy."""
    task = _task(scale, folder)
    return task.accuracy(
        fine_tuned(
            task,
            PrivateSteps(task, task.recorded, folder),
            seed=first + place,
            kept=folder / f"recorded-{task.label}-{task.recorded}-{place}.npz",
            gradients=_gradients(scale, folder)[place],
        )
    )


def _accuracy_within(scale: str, folder: Path, first: int, *, seed: int, subspace: str, k: int) -> float:
    """Train privately once, or find it: in all dimensions, in the top k of the recorded ones, or in k random ones."""
    task = _task(scale, folder)
    if subspace == "all" and task.steps == task.recorded and seed < RECORDED[scale]:
        return _recorded(scale, folder, first, seed)
    directions = None
    if subspace == "top":
        directions = top_directions(_gradients(scale, folder), max(KS[scale]))[:k]
    elif subspace == "random":
        directions = random_directions(task, k, np.random.default_rng([first + seed, k]))
    kept = folder / f"{subspace}-{k}-{task.label}-{task.steps}-{seed}.npz"
    return task.accuracy(
        fine_tuned(
            task, PrivateSteps(task, task.steps, folder), seed=first + 100 + seed, kept=kept, directions=directions
        )
    )


def gradient_spectrum(scale: str, rng: np.random.Generator) -> PaperResult:
    """Fine-tune privately with a recorder, take the spectrum, re-train inside the top k directions."""
    ks = KS[scale]
    cells: list[dict[str, Any]] = [{"seed": seed, "subspace": "all", "k": 0} for seed in range(SEEDS[scale])] + [
        {"seed": seed, "subspace": subspace, "k": k}
        for seed in range(RETRAINED[scale])
        for subspace, k in [*(("top", k) for k in reversed(ks)), ("random", max(ks))]
    ]
    with _folder(scale, rng) as (folder, first):
        task = _task(scale, folder)
        long, short = (PrivateSteps(task, steps, folder) for steps in (task.recorded, task.steps))
        before = task.accuracy(task.module())
        over_trained = [_recorded(scale, folder, first, place) for place in range(RECORDED[scale])]
        spectrum = _spectrum(gram_of(_gradients(scale, folder)), task)
        accuracies = [_accuracy_within(scale, folder, first, **cell) for cell in cells]
        spent = sum(float(np.load(path)["cpu_seconds"]) for path in folder.glob(f"*-{task.label}-*.npz"))
    rows: list[dict[str, Any]] = [
        cell
        | {"test_accuracy": accuracy, "captured": spectrum.captured(cell["k"]) if cell["subspace"] == "top" else None}
        for cell, accuracy in zip(cells, accuracies, strict=True)
    ]
    full = float(np.mean([row["test_accuracy"] for row in rows if row["subspace"] == "all"]))
    error = math.sqrt(full * (1 - full) / len(task.y_test))
    decay = spectrum.decay()
    coefficients = LipschitzCoefficients.of_gradient_spectrum(
        spectrum.singular_values, clip_norm=task.clip, dimension=spectrum.dimension
    )
    answer = effective_dimension(coefficients, distance=1.0, n_records=len(task.y), mu=1.0)
    settings = {
        "data": task.name,
        "n": len(task.y),
        "trainable_parameters": spectrum.dimension,
        "epsilon": EPSILON,
        "delta": len(task.y) ** -1.1,
        "neighbouring": str(task.budget.neighbouring),
        "split_of_the_budget": task.words or "all for the matrices",
        "recorded_runs": f"{RECORDED[scale]} of {long.words}",
        "other_runs": short.words,
        "clip_norm": task.clip,
        "learning_rate": task.rate,
        "momentum": task.momentum,
        "cpu_seconds_of_all_runs": round(spent),
        "seeds_in_all_dimensions": SEEDS[scale],
        "seeds_in_each_subspace": RETRAINED[scale],
        "accuracy_before": before,
        "accuracy_private": full,
        "accuracy_of_the_recorded_runs": over_trained,
        "accuracy_standard_error": error,
        "decay_exponent": decay.exponent,
        "fit_range": [decay.first, decay.last],
        "decay_exponent_head": decay.head,
        "decay_exponent_tail": decay.tail,
        "fit_error": decay.root_mean_square_error,
        "effective_dimension": answer.words,
        "singular_values": [float(f"{v:.6g}") for v in spectrum.singular_values],
    }
    notes = (
        LABEL,
        "each run alone meets the budget; lines are means over seeds, error bars binomial standard errors of the test",
        "S4 fine-tunes DistilRoBERTa by templated prediction with 7 million parameters and 2000 recorded steps",
    )
    return PaperResult(
        settings, rows, judge_spectrum(settings, rows), lambda figure: draw_spectrum(figure, settings, rows), notes
    )


def judge_spectrum(settings: dict[str, Any], rows: list[dict[str, Any]]) -> list[Claim]:
    """How fast singular values decay, with and without the first of them, and what the top directions recover."""

    def mean(subspace: str, k: int) -> float:
        return float(np.mean([r["test_accuracy"] for r in rows if (r["subspace"], r["k"]) == (subspace, k)]))

    before, full, error = (settings[f"accuracy_{name}"] for name in ("before", "private", "standard_error"))
    most = max(row["k"] for row in rows)
    best, random = mean("top", most), mean("random", most)
    values, (first, last) = settings["singular_values"], settings["fit_range"]
    decay, rest = fit_decay(values, first=first, last=last), fit_decay(values, first=first + 1, last=last)
    claims = [
        Claim(
            f"singular values decay: exponent clearly negative over ranks {first} to {last} (beyond .2)",
            decay.exponent > 0.2, -decay.exponent,
        ),
        Claim(
            f"they decay rapidly beyond the first: like k^-1/2 or faster over ranks {first + 1} to {last}, from where "
            "on the bound needs no dimension", rest.exponent >= 0.5, -rest.exponent, words=DECAYS,
        ),
        Claim(
            f"the top {most} directions suffice: within {ALMOST:g} of the accuracy of all "
            f"{settings['trainable_parameters']} dimensions, mean over seeds",
            best >= full - ALMOST, best - full, words=SUFFICES,
        ),
        Claim(
            "private training moved the accuracy by more than 3 standard errors, so that it can be missed",
            full > before + 3 * error, full - before,
        ),
        Claim(
            f"a random subspace of {most} dimensions recovers less than half of what was learnt",
            random < before + 0.5 * (full - before), random - before,
        ),
    ]  # fmt: skip
    if settings["data"].startswith("SST-2"):
        claims.append(Claim("private fine-tuning reaches an accuracy of .88", full >= 0.88, full, words=REACHES))
    return claims


def _spectrum(gram: Any, task: FineTuning) -> GradientSpectrum:
    values, _ = leading_eigenpairs(lambda Q: gram @ Q, len(gram), len(gram), rng=np.random.default_rng(0))
    size = sum(p.numel() for p in task.module().parameters() if p.requires_grad)
    return GradientSpectrum(np.sqrt(values), float(np.trace(gram)), len(gram), size, 0.0, LABEL)


def draw_spectrum(figure: Any, settings: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Singular values with their fits, and accuracies of re-training."""
    figure.set_size_inches(9, 4.5)
    left, right = figure.subplots(1, 2)
    values = np.array(settings["singular_values"])
    ranks = np.arange(1, len(values) + 1)
    left.plot(ranks, values, ".", ms=4, color="#2a7f9e")
    first, last = settings["fit_range"]
    for begin, style in ((first, ":"), (first + 1, "-")):
        exponent, inside = fit_decay(values, first=begin, last=last).exponent, slice(begin - 1, last)
        shift = np.exp(np.mean(np.log(values[inside] * ranks[inside] ** exponent)))
        left.plot(ranks[inside], shift * ranks[inside] ** -exponent, style, color="#c8553d",
                  label=f"k^-{exponent:.2f}, ranks {begin}–{last}")  # fmt: skip
    left.set(xscale="log", yscale="log", xlabel="rank", ylabel="singular value", title="gradients before noise")
    left.legend()
    error = settings["accuracy_standard_error"]
    for subspace, style, colour in (("top", "o", "#2a7f9e"), ("random", "x", "#8a93a6")):
        chosen = [row for row in rows if row["subspace"] == subspace]
        right.plot([r["k"] for r in chosen], [r["test_accuracy"] for r in chosen], style, ms=3, color=colour, alpha=0.5)
        x = sorted({row["k"] for row in chosen})
        y = [float(np.mean([row["test_accuracy"] for row in chosen if row["k"] == k])) for k in x]
        right.errorbar(x, y, error, fmt="-", color=colour, capsize=2, label=f"{subspace} k directions")
    right.axhline(settings["accuracy_private"], color="#c8553d", lw=1, label=f"all {settings['trainable_parameters']}")
    right.axhline(settings["accuracy_before"], color="#8a93a6", lw=1, linestyle="--", label="before")
    right.set(xscale="log", xlabel="k", ylabel="test accuracy", title=f"re-trained, ε = {settings['epsilon']:g}")
    shown = sorted({row["k"] for row in rows if row["k"]})
    right.set_xticks(shown, [str(value) for value in shown])
    right.set_xticks([], minor=True)
    right.legend()


def spectrum_robustness(scale: str, rng: np.random.Generator) -> PaperResult:
    """S4, Figures 3 to 5: the spectrum by iterations, by number of gradients, and without the early ones."""
    with _folder(scale, rng) as (folder, first):
        task = _task(scale, folder)
        before = task.accuracy(task.module())
        accuracies = [_recorded(scale, folder, first, place) for place in range(RECORDED[scale])]
        words = f"{RECORDED[scale]} of {PrivateSteps(task, task.recorded, folder).words}"
        gram = gram_of(_gradients(scale, folder))
    r, runs = len(gram), RECORDED[scale]
    last = max(4, r // 8)  # S4 shows the top 500 of 4000
    # Steps of all runs side by side: "first" and "last" are about the time in training.
    by_time = np.arange(r).reshape(runs, -1).T.ravel()
    gram = gram[np.ix_(by_time, by_time)]
    start = int(rng.integers(2**31))

    def eigenvalues(chosen: slice, iterations: int = 200) -> Any:
        part = gram[chosen, chosen]
        return leading_eigenpairs(
            lambda Q: part @ Q, len(part), last, rng=np.random.default_rng(start), iterations=iterations, tolerance=0.0
        )[0]

    half = r // 2
    shown = {
        **{("iterations", f"T = {T}"): eigenvalues(slice(None), T) for T in (2, 5, 10, 100)},
        **{("gradients", f"first {m} of {r}"): eigenvalues(slice(m)) for m in (r // 4, half, r)},
        ("window", f"first {half}"): eigenvalues(slice(half)),
        ("window", f"last {half}"): eigenvalues(slice(r - half, r)),
    }
    rows: list[dict[str, Any]] = []
    for (panel, label), values in shown.items():
        fit = fit_decay(values)
        rows.append(
            {"panel": panel, "run": label, "slope": fit.exponent, "eigenvalues": [float(f"{v:.6g}") for v in values]}
        )
    slope = {(row["panel"], row["run"]): row["slope"] for row in rows}
    of_samples = [value for (panel, _), value in slope.items() if panel == "gradients"]
    early, late = slope["window", f"first {half}"], slope["window", f"last {half}"]
    apart = abs(slope["iterations", "T = 10"] - slope["iterations", "T = 100"])
    claims = [
        Claim(
            f"slope of the top {last} eigenvalues after 10 iterations within .05 of that after 100",
            apart <= 0.05, apart, words=ITERATIONS,
        ),
        Claim(
            "slopes of a quarter, half and all of the gradients within a factor of 1.5",
            max(of_samples) <= 1.5 * min(of_samples), max(of_samples) / min(of_samples), words=SAMPLES,
        ),
        Claim(
            "without the first half of the steps the slope keeps two thirds of its size",
            late >= early * 2 / 3, late / early, words=LATE,
        ),
    ]  # fmt: skip
    settings = {
        "data": task.name,
        "n": len(task.y),
        "recorded_runs": words,
        "learning_rate": task.rate,
        "accuracy_before": before,
        "accuracy_of_the_recorded_runs": accuracies,
        "gradients": r,
        "eigenvalues": last,
    }
    notes = (LABEL, "from the recording of s4-fig2; eigenvalues are squares of its singular values, as S4 draws them")

    return PaperResult(settings, rows, claims, lambda figure: draw_robustness(figure, settings, rows), notes)


def draw_robustness(figure: Any, settings: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Eigenvalues by iterations, by number of gradients, by window."""
    figure.set_size_inches(11, 4.5)
    ranks = np.arange(1, settings["eigenvalues"] + 1)
    for axes, panel in zip(figure.subplots(1, 3, sharey=True), ("iterations", "gradients", "window"), strict=True):
        for row, marker in zip((row for row in rows if row["panel"] == panel), "o^sx", strict=False):
            label = f"{row['run']}: k^-{row['slope']:.2f}"
            axes.plot(ranks, row["eigenvalues"], marker=marker, ms=3.5, lw=0.8, fillstyle="none", label=label)
        axes.set(xscale="log", yscale="log", xlabel="rank", title=panel)
        axes.legend()
    figure.axes[0].set_ylabel("eigenvalue of HᵀH")
