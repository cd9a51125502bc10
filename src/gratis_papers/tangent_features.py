"""Tangent features of a fine-tuned transformer, sketched: the gradient of its score along every trained matrix.

A matrix W (p × q) is moved inside a random Kronecker subspace only, W + AᵀZB with A (r, p), B (r, q): the score's
derivative in Z is A·g·Bᵀ, g the gradient in W, which comes from the layer's inputs and the gradients of its outputs
without g ever being formed. The score is the log odds of the second half of the classes against the first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["TangentSketch", "log_odds"]


def log_odds(scores: Any) -> Any:
    """Return log of the second half of the classes' chances over the first half's: one number a record."""
    half = scores.shape[1] // 2
    return torch.logsumexp(scores[:, half:], dim=1) - torch.logsumexp(scores[:, :half], dim=1)


@dataclass(frozen=True)
class TangentSketch:
    """Random factors (A, B) of every trained matrix, by its module's name; public and drawn from a seed."""

    names: tuple[str, ...]
    factors: tuple[tuple[Any, Any], ...]

    @classmethod
    def draw(cls, module: Any, rank: int, *, seed: int = 0) -> TangentSketch:
        """Factors with entries N(0, 1/rank) for all query and value matrices: lengths are kept on average."""
        generator = torch.Generator().manual_seed(seed)
        found = [(n, m) for n, m in module.named_modules() if n.endswith(("query", "value"))]
        factors = tuple(
            tuple(torch.randn(rank, size, generator=generator) / math.sqrt(rank) for size in m.weight.shape)
            for _, m in found
        )
        return cls(tuple(n for n, _ in found), factors)

    @property
    def size(self) -> int:
        """Numbers a record."""
        return sum(len(left) * len(right) for left, right in self.factors)

    def features(self, module: Any, X: Any, last: str | None = None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the derivatives of the log odds, (records, size), and the log odds themselves.

        `last` names a module whose inputs are appended: those of a linear head are its gradients in turn.
        """
        modules = dict(module.named_modules())
        seen: dict[str, tuple[Any, Any]] = {}

        def keep(name: str) -> Callable[..., Any]:
            def hook(_: Any, inputs: Any, output: Any) -> Any:
                # A leaf of its own, so that nothing below has to know its parameters.
                output = output.requires_grad_(True) if output.is_leaf else output
                seen[name] = (inputs[0].detach(), output)
                return output

            return hook

        taken: list[Any] = []
        handles = [modules[name].register_forward_hook(keep(name)) for name in self.names]
        if last is not None:
            handles.append(modules[last].register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0].detach())))
        try:
            scores = log_odds(module(X))
            slopes = torch.autograd.grad(scores.sum(), [seen[name][1] for name in self.names])
        finally:
            for handle in handles:
                handle.remove()
        parts = []
        for name, slope, (left, right) in zip(self.names, slopes, self.factors, strict=True):
            inputs = seen[name][0]
            product = torch.einsum("btr,bts->brs", slope @ left.T, inputs @ right.T)
            parts.append(product.reshape(len(scores), -1))
        with torch.no_grad():
            return torch.cat([*parts, *taken], dim=1).numpy(), scores.detach().numpy()

    def moved(self, module: Any, weights: NDArray[np.float64]) -> Any:
        """Add AᵀZB to every matrix, Z from the flat weights; changes the module and returns it."""
        modules, start = dict(module.named_modules()), 0
        with torch.no_grad():
            for name, (left, right) in zip(self.names, self.factors, strict=True):
                end = start + len(left) * len(right)
                Z = torch.from_numpy(weights[start:end].reshape(len(left), len(right))).to(left.dtype)
                modules[name].weight += left.T @ Z @ right
                start = end
        return module

    def all_features(
        self,
        module: Any,
        X: Any,
        micro_batch: int,
        *,
        last: str | None = None,
        kept: Path | None = None,
        part: int = 4096,
        backwards: bool = False,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return features and log odds of all records; parts that were computed before are found in the folder.

        A second process may help with `backwards`: it starts with the last part.
        """
        found: list[Sequence[NDArray[np.float32]]] = []
        starts = range(0, len(X), part)
        for start in reversed(starts) if backwards else starts:
            place = None if kept is None else kept / f"tangent-{start}-{min(start + part, len(X))}.npz"
            if place is not None and place.is_file():
                with np.load(place) as stored:
                    found.append((stored["features"].astype(np.float32), stored["scores"]))
                continue
            rows = [self.features(module, X[i : min(i + micro_batch, start + part)], last)
                    for i in range(start, min(start + part, len(X)), micro_batch)]  # fmt: skip
            features, scores = (np.concatenate(each) for each in zip(*rows, strict=True))
            if place is not None:
                partial = place.with_suffix(f".{os.getpid()}.partial.npz")
                np.savez(partial, features=features.astype(np.float16), scores=scores)
                partial.replace(place)
            found.append((features, scores))
        ordered = found[::-1] if backwards else found
        features, scores = (np.concatenate(each) for each in zip(*ordered, strict=True))
        return features, scores
