"""What s4-fig2 fine-tunes: the form of a task, and a tiny transformer on digits for the smoke scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gratis.records.budget import Budget

__all__ = ["FineTuning", "TinyTransformer", "digits_task", "query_and_value"]


@dataclass(frozen=True, eq=False)
class FineTuning:
    """A start, records to train on, a test set, and settings of one private training.

    `batch` is the expected size of a Poisson batch, None the full batch; `recorded` are the steps of the long run whose
    gradients are kept ("over-training"), `steps` those of every other run; each run alone meets `budget`. `clip` is the
    clip norm of a record's gradient; steps follow v ← `momentum`·v + g, θ ← θ − `rate`·v.
    """

    name: str
    module: Callable[[], Any]
    X: Any
    y: NDArray[np.int64]
    X_test: Any
    y_test: NDArray[np.int64]
    steps: int
    recorded: int
    batch: int | None
    rate: float
    clip: float
    budget: Budget
    momentum: float = 0.0
    micro_batch: int = 2048
    words: str = ""

    @property
    def label(self) -> str:
        """In names of kept runs: those of other settings are not found."""
        return f"{self.batch or 'all'}-{self.clip:g}-{self.rate:g}-{self.momentum:g}"

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


def query_and_value(module: Any, *, head: bool) -> Any:
    """Leave only query and value matrices trainable, and the head if asked for."""
    for name, parameter in module.named_parameters():
        chosen = name.endswith(("query.weight", "value.weight")) or (head and name.startswith("head."))
        parameter.requires_grad_(chosen)
    return module.eval()


def digits_task(epsilon: float = 8.0) -> FineTuning:
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
        return query_and_value(fresh, head=False)

    return FineTuning(
        name="scikit-learn digits, 200 public images for pre-training",
        module=module,
        X=X[private],
        y=labels[private],
        X_test=X[test],
        y_test=labels[test],
        steps=24,
        recorded=24,
        batch=None,
        rate=80.0,
        clip=0.1,  # S4's, from Li et al. 2022
        budget=Budget(epsilon=epsilon, delta=len(private) ** -1.1),
    )
