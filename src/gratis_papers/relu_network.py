"""ReLU networks as bare weight matrices: every layer's input a and output gradient b. Needs the `nn` extra."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError

__all__ = ["ReluNetwork", "Residual", "logistic_residual", "softmax_residual", "squared_residual"]

Residual = Callable[[Any, Any], Any]
"""(scores, targets) → gradient of each record's loss in its scores."""


def softmax_residual(scores: Any, labels: Any) -> Any:
    """softmax(f) − one-hot(y): the gradient of cross-entropy in the scores; labels 0 … o−1."""
    return torch.softmax(scores, dim=1).scatter_add(1, labels[:, None], -torch.ones_like(scores[:, :1]))


def logistic_residual(scores: Any, labels: Any) -> Any:
    """−y/(1 + e^{yf}) for one output and labels ±1."""
    signs = labels[:, None].to(scores.dtype)
    return -signs * torch.sigmoid(-signs * scores)


def squared_residual(scores: Any, targets: Any) -> Any:
    """F − y: the gradient of ½(f − y)²."""
    return scores - targets.reshape(scores.shape).to(scores.dtype)


class ReluNetwork:
    """Weights W_1 … W_L without biases, drawn from N(0, β_l); optionally linearised at their start.

    >>> network = ReluNetwork([3, 4, 1], [1.0, 1.0], generator=torch.Generator().manual_seed(0))
    >>> network.scores(torch.ones(2, 3)).shape
    torch.Size([2, 1])
    """

    def __init__(
        self,
        widths: Sequence[int],
        variances: Sequence[float],
        *,
        generator: Any,
        linearised: bool = False,
        dtype: Any = torch.float32,
    ) -> None:
        sizes = [check_count("a width", width) for width in widths]
        if len(sizes) < 2 or len(variances) != len(sizes) - 1:
            raise GratisError("a network needs a depth of at least 1, and one initial variance for each layer")
        self.weights = [
            torch.randn(after, before, generator=generator, dtype=dtype)
            * math.sqrt(check_positive("a layer variance", beta))
            for before, after, beta in zip(sizes[:-1], sizes[1:], variances, strict=True)
        ]
        self.anchor = [w.clone() for w in self.weights] if linearised else None

    @classmethod
    def from_weights(cls, weights: Sequence[Any], *, linearised: bool = False) -> ReluNetwork:
        """Return the network with these weight matrices, linearised there if asked for."""
        network = cls.__new__(cls)
        network.weights = [w.clone() for w in weights]
        network.anchor = [w.clone() for w in weights] if linearised else None
        return network

    def forward(self, x: Any) -> tuple[list[Any], Any]:
        """Return every layer's input, and the scores."""
        layers, h = [], x
        base = self.weights if self.anchor is None else self.anchor
        for i, w in enumerate(base):
            layers.append(h)
            h = h @ w.T
            if i < len(base) - 1:
                h = h.relu_()
        return layers, h if self.anchor is None else h + self._tangent(layers)

    def scores(self, x: Any) -> Any:
        """Return f(x)."""
        return self.forward(x)[1]

    def _tangent(self, layers: list[Any]) -> Any:
        """J(x)·(W − W₀), J at the anchor: one forward pass of the directional derivative."""
        assert self.anchor is not None
        moved: Any = 0.0
        for i, (w, start, a) in enumerate(zip(self.weights, self.anchor, layers, strict=True)):
            step = a @ (w - start).T
            moved = step if i == 0 else step + moved @ start.T
            if i < len(layers) - 1:
                moved = moved * (layers[i + 1] > 0)
        return moved

    def backward(self, layers: list[Any], residual: Any) -> list[Any]:
        """Return b_1 … b_L: the loss's gradient in every layer's output before its ReLU."""
        base = self.weights if self.anchor is None else self.anchor
        b, found = residual, [residual]
        for a, w in zip(layers[:0:-1], base[:0:-1], strict=True):
            b = (b @ w).mul_(a > 0)
            found.append(b)
        return found[::-1]
