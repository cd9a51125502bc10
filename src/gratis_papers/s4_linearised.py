"""S4, Figure 2 for the linearised network, which its theorem is about: 2,000 gradients, k = 10, 20, 100, five seeds.

Fine-tuning is convex here: logistic regression on sketched tangent features (`tangent_features`) beside the log odds
of the start. A step costs milliseconds, so that over-training and five seeds are affordable, which they are not for the
network itself (s4-fig2). Diagnostic on public sentences: gradients are looked at before noise.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.planning.bounds.gradient_spectrum import fit_decay
from gratis.records.budget import Budget
from gratis.records.neighbouring import Neighbouring
from gratis.stages.poisson_sampling import PoissonSampling
from gratis_papers.gradient_spectrum import LABEL
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s4_spectrum import ALMOST, DECAYS, EPSILON, REACHES, SUFFICES
from gratis_papers.sweeps import kept_in

__all__ = ["linearised_fine_tuning"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Size:
    """Rank of the sketch, expected batch (None: all records), steps of a run and of the recorded one, seeds, ks."""

    rank: int
    batch: int | None
    steps: int
    recorded: int
    seeds: int
    ks: tuple[int, ...]
    apart: int


SIZES = {
    "smoke": Size(6, None, 60, 80, 2, (2, 5), 200),
    "full": Size(18, 1000, 500, 2000, 5, (10, 20, 100), 3000),
}
# Tried on sentences kept apart: clip norms in units of the median feature length, and total rates of a run.
_CLIPS, _RATES, _MOMENTUM = (0.1, 0.3, 1.0), (0.3, 1.0, 3.0, 10.0, 30.0), 0.8
NETWORK_ACCURACY = 0.8257  # of the network's own private run (s4-fig2)


@dataclass(frozen=True)
class Linearised:
    """Features and start scores of training records and of the test, labels ±1, and what they are."""

    name: str
    Z: Array
    start: Array
    y: Array
    Z_test: Array
    start_test: Array
    y_test: Array
    budget: Budget

    def accuracy(self, weights: Array) -> float:
        """Share of test records whose linearised log odds have the right sign."""
        return float(np.mean((self.start_test + self.Z_test @ weights > 0) == (self.y_test > 0)))


@contextmanager
def _folder(scale: str) -> Iterator[Path]:
    kept = kept_in(f"s4-linear-{scale}")
    if kept is not None:
        yield kept
    else:
        with tempfile.TemporaryDirectory() as short:
            yield Path(short)


def _problem(scale: str, folder: Path) -> Linearised:
    from gratis_papers.tangent_features import TangentSketch

    if scale == "smoke":
        from gratis_papers.s4_tasks import digits_task

        task = digits_task(EPSILON)
        classes = 10
    else:
        from gratis_papers.minilm import sst2_task

        budget = Budget(epsilon=EPSILON, delta=67_349**-1.1, neighbouring=Neighbouring.ZERO_OUT)
        task = sst2_task(batch=1000, steps=500, recorded=2000, head_records=67_349, budget=budget, folder=folder)
        classes = 2
    module = task.module()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    sketch = TangentSketch.draw(module, SIZES[scale].rank)
    features = {}
    for part, X in (("train", task.X), ("test", task.X_test)):
        place = folder / part
        place.mkdir(exist_ok=True)
        linear = scale == "full"
        # The head moves too; its gradient is the pooled state, once with each sign.
        Z, scores = sketch.all_features(module, X, 64 if linear else 256, last="head" if linear else None, kept=place)
        if linear:
            Z = np.hstack([Z, np.ones((len(Z), 1), np.float32)])
            Z[:, sketch.size :] *= math.sqrt(2)
        features[part] = Z, scores
    signs = [np.where(np.asarray(y) >= classes // 2, 1.0, -1.0) for y in (task.y, task.y_test)]
    return Linearised(task.name, *features["train"], signs[0], *features["test"], signs[1], task.budget)


def _multiplier(n: int, batch: int, steps: int, budget: Budget, folder: Path) -> float:
    """Noise of a step in units of the clip norm; the search for Poisson batches takes half a minute and is kept."""
    if batch == n:
        return budget.neighbouring.sensitivity_factor * math.sqrt(steps) / calibrate_mu(budget)
    kept = folder / f"noise-{n}-{batch}-{steps}-{budget.epsilon:g}.json"
    if not kept.is_file():
        found = PoissonSampling.calibrated(n, expected_batch_size=batch, steps=steps, budget=budget)
        kept.write_text(json.dumps(found.event.noise_multiplier))
    return float(json.loads(kept.read_text()))


def _trained(
    problem: Linearised, *, steps: int, batch: int, multiplier: float, clip: float, rate: float, seed: int,
    rows: Array | None = None, directions: Array | None = None, record: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """Run private descent on the linearised model; return the weights and, if asked, its gradients before noise."""
    rng = np.random.default_rng(seed)
    Z, start, y = (part if rows is None else part[rows] for part in (problem.Z, problem.start, problem.y))
    lengths = np.linalg.norm(Z, axis=1)
    weights, velocity = np.zeros(Z.shape[1]), np.zeros(Z.shape[1])
    gradients = []
    for _ in range(steps):
        chosen = np.flatnonzero(rng.random(len(y)) < batch / len(y))
        margin = y[chosen] * (start[chosen] + Z[chosen] @ weights)
        slopes = -y[chosen] / (1 + np.exp(np.minimum(margin, 500)))
        slopes *= np.minimum(1, clip / np.maximum(np.abs(slopes) * lengths[chosen], 1e-30))
        mean = slopes @ Z[chosen] / batch
        if record:
            gradients.append(mean.astype(np.float32))
        if directions is not None:
            mean = (directions @ mean) @ directions
        velocity = _MOMENTUM * velocity + mean + multiplier * clip / batch * rng.standard_normal(len(mean))
        weights -= rate / steps * velocity
    return weights, np.array(gradients)


def _chosen(problem: Linearised, size: Size, batch: int, multiplier: float) -> tuple[float, float, float]:
    """Accuracy on training records kept apart, clip norm and total rate, where the first is best; it chose all."""
    apart, steps = size.apart, size.steps
    rows = np.random.default_rng(1).permutation(len(problem.y))
    judge, others = rows[:apart], rows[apart:]
    typical = float(np.median(np.linalg.norm(problem.Z, axis=1)))
    tried = []
    for share in _CLIPS:
        for rate in _RATES:
            clip = share * typical
            weights, _ = _trained(problem, steps=steps, batch=batch, multiplier=multiplier, clip=clip,
                                  rate=rate / (typical * clip), seed=7, rows=others)  # fmt: skip
            right = np.mean(problem.y[judge] * (problem.start[judge] + problem.Z[judge] @ weights) > 0)
            tried.append((float(right), clip, rate / (typical * clip)))
    return max(tried)


def linearised_fine_tuning(scale: str, rng: np.random.Generator) -> PaperResult:
    """Private training of the linearised network in all dimensions, in its top k directions and in random ones."""
    size = SIZES[scale]
    steps, recorded, ks = size.steps, size.recorded, size.ks
    first = int(rng.integers(2**31))
    with _folder(scale) as folder:
        problem = _problem(scale, folder)
        n = len(problem.y)
        batch = size.batch or n
        short, long = (_multiplier(n, batch, count, problem.budget, folder) for count in (steps, recorded))
    apart, clip, rate = _chosen(problem, size, batch, short)
    _, gradients = _trained(problem, steps=recorded, batch=batch, multiplier=long, clip=clip, rate=rate, seed=first,
                            record=True)  # fmt: skip
    _, values, top = np.linalg.svd(gradients.astype(np.float64), full_matrices=False)
    before = problem.accuracy(np.zeros(problem.Z.shape[1]))
    rows: list[dict[str, Any]] = []
    for seed in range(size.seeds):
        tries: list[tuple[str, int, Array | None]] = [("all", 0, None), *(("top", k, top[:k]) for k in ks)]
        tries += [("random", k, np.linalg.qr(np.random.default_rng([first, seed, k]).standard_normal(
            (problem.Z.shape[1], k)))[0].T) for k in ks[-1:]]  # fmt: skip
        for subspace, k, directions in tries:
            weights, _ = _trained(problem, steps=steps, batch=batch, multiplier=short, clip=clip, rate=rate,
                                  seed=first + 1 + seed, directions=directions)  # fmt: skip
            rows.append({"seed": seed, "subspace": subspace, "k": k, "test_accuracy": problem.accuracy(weights)})
    full = float(np.mean([row["test_accuracy"] for row in rows if row["subspace"] == "all"]))
    settings = {
        "data": problem.name,
        "n": n,
        "features": problem.Z.shape[1],
        "rank_of_the_sketch": size.rank,
        "epsilon": EPSILON,
        "budget_of_a_run": f"ε = {problem.budget.epsilon:g}, δ = {problem.budget.delta:.3g}",
        "neighbouring": str(problem.budget.neighbouring),
        "batch": batch,
        "steps": steps,
        "recorded_gradients": recorded,
        "noise_multiplier": short,
        "clip_norm": clip,
        "learning_rate": rate / steps,
        "momentum": _MOMENTUM,
        "accuracy_kept_apart": apart,
        "accuracy_before": before,
        "accuracy_private": full,
        "accuracy_standard_error": math.sqrt(full * (1 - full) / len(problem.y_test)),
        "accuracy_of_the_network": NETWORK_ACCURACY if scale == "full" else None,
        "singular_values": [float(f"{value:.6g}") for value in values[: min(1000, recorded // 2)]],
    }
    notes = (
        LABEL,
        "the model is the network's linearisation in a random Kronecker subspace of every query and value matrix, and "
        "its head: convex, as the theorem asks; clip norm and rate were chosen on training records kept apart",
        "each run alone meets the budget; five seeds of sampling and noise, dots; lines: means",
    )
    return PaperResult(
        settings, rows, judge_linearised(settings, rows), lambda figure: draw_linearised(figure, settings, rows), notes
    )  # fmt: skip


def _mean(rows: list[dict[str, Any]], subspace: str, k: int) -> float:
    return float(np.mean([r["test_accuracy"] for r in rows if (r["subspace"], r["k"]) == (subspace, k)]))


def judge_linearised(settings: dict[str, Any], rows: list[dict[str, Any]]) -> list[Claim]:
    """Figure 2's two statements, and how near the network comes."""
    most = max(row["k"] for row in rows)
    full, before = settings["accuracy_private"], settings["accuracy_before"]
    decay = fit_decay(settings["singular_values"], first=2)
    top, random = _mean(rows, "top", most), _mean(rows, "random", most)
    claims = [
        Claim(f"singular values decay rapidly beyond the first: like k^-1/2 or faster over ranks 2 to {decay.last}",
              decay.exponent >= 0.5, -decay.exponent, words=DECAYS),
        Claim(f"the top {most} directions suffice: within {ALMOST:g} of the accuracy of all {settings['features']}, "
              "mean over seeds", top >= full - ALMOST, top - full, words=SUFFICES),
        Claim("private training moved the accuracy by more than 3 standard errors, so that it can be missed",
              full > before + 3 * settings["accuracy_standard_error"], full - before),
        Claim(f"a random subspace of {most} dimensions recovers less than half of what was learnt",
              random < before + 0.5 * (full - before), random - before),
    ]  # fmt: skip
    if settings["accuracy_of_the_network"] is not None:
        network = settings["accuracy_of_the_network"]
        claims.append(Claim("ours: the linearised model is at least as accurate as the network's own private run",
                            full >= network, full - network))  # fmt: skip
        claims.append(Claim("private fine-tuning of the linearised model reaches an accuracy of .88", full >= 0.88,
                            full, words=REACHES))  # fmt: skip
    return claims


def draw_linearised(figure: Any, settings: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Singular values with their fit, accuracies by subspace."""
    figure.set_size_inches(9.5, 4.6)
    left, right = figure.subplots(1, 2)
    values = np.array(settings["singular_values"])
    ranks = np.arange(1, len(values) + 1)
    left.plot(ranks, values, ".", ms=4)
    fit = fit_decay(values, first=2)
    inside = slice(fit.first - 1, fit.last)
    shift = np.exp(np.mean(np.log(values[inside] * ranks[inside] ** fit.exponent)))
    left.plot(ranks[inside], shift * ranks[inside] ** -fit.exponent, color="C1",
              label=f"k^-{fit.exponent:.2f}, ranks {fit.first}–{fit.last}")  # fmt: skip
    left.set(xscale="log", yscale="log", xlabel="rank", ylabel="singular value",
             title=f"{settings['recorded_gradients']} gradients before noise")  # fmt: skip
    left.legend()
    for subspace, colour in (("top", "C0"), ("random", "C6")):
        chosen = [row for row in rows if row["subspace"] == subspace]
        right.plot([r["k"] for r in chosen], [r["test_accuracy"] for r in chosen], ".", color=colour, alpha=0.5)
        x = sorted({row["k"] for row in chosen})
        right.errorbar(x, [_mean(rows, subspace, k) for k in x], settings["accuracy_standard_error"], fmt="o-",
                       color=colour, label=f"{subspace} k directions")  # fmt: skip
    right.axhline(settings["accuracy_private"], color="C1", lw=1, label=f"all {settings['features']}")
    if settings["accuracy_of_the_network"] is not None:
        right.axhline(
            settings["accuracy_of_the_network"], color="C2", lw=1, ls=":", label="the network itself (s4-fig2)"
        )
    right.axhline(settings["accuracy_before"], color="grey", lw=1, ls="--", label="before")
    right.set(xscale="log", xlabel="k", ylabel="test accuracy", title=f"linearised, ε = {settings['epsilon']:g}")
    shown = sorted({row["k"] for row in rows if row["k"]})
    right.set_xticks(shown, [str(value) for value in shown])
    right.set_xticks([], minor=True)
    right.legend()
