"""How each kind of layer turns (input a, output gradient b) into per-record gradient norms and weighted sums.

A *use* is one parameter met once in the forward pass. Two questions are asked of it: an upper bound on the squared
norm of every record's gradient, and Σᵢ wᵢ·(gradient of record i), without a second backward pass.

Floating point: norms are rounded up, and sums are either float64 or float32 over blocks of `BLOCK` records, a few of
them added in float32 and the rest in float64 (`block_sums`); `network_rounding_inflation` pays for the float32 part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from gratis.mechanisms.block_sums import BlockSums, aligned
from gratis.numerics.network_rounding import BLOCK, GRAM_SLACK, LONGEST_CHAIN, SINGLE_UNIT
from gratis.records.errors import GratisError

__all__ = ["RULES", "DirectUse", "EmbeddingUse", "MatrixUse", "Rule", "Use", "merged"]

# Squares below the normal float32 range are lost; this much more than covers them in a computed norm.
_TINY_NORM = 1e-15


def _norms(vectors: Tensor) -> Tensor:
    """‖·‖ over the last dimension as float64, never too small: (1+γ)·computed + tiny, overflow gives ∞."""
    computed = torch.linalg.vector_norm(vectors, dim=-1).double()
    return computed * (1 + SINGLE_UNIT * (vectors.shape[-1] + 8)) + _TINY_NORM


def _rows(mask: Tensor, tensor: Tensor) -> Tensor:
    return mask.reshape(-1, *[1] * (tensor.ndim - 1))


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))


class DirectUse:
    """A gradient that is held for every record: biases, scales, and modules without a rule."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = aligned(gradients)

    def squared_norms(self) -> Tensor:
        """‖gradient of record i‖², in float64."""
        flat = self.gradients.flatten(1)
        size = torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64)
        return size.square_() * (1 + 1e-8)

    def drop(self, bad: Tensor) -> None:
        """Set the gradients of the marked records to zero."""
        self.gradients = self.gradients.masked_fill(_rows(bad, self.gradients), 0)

    def add_weighted_sum(self, weights: Tensor, total: NDArray[np.float64], sums: BlockSums) -> None:
        """Add Σ wᵢ·gradientᵢ to total."""
        flat = self.gradients.flatten(1)
        scale = weights.to(flat.dtype)
        for rows in _blocks(len(flat)):
            total += (scale[rows] @ flat[rows]).numpy()

    def materialised(self) -> DirectUse:
        """Itself."""
        return self

    def merge(self, other: DirectUse) -> DirectUse:
        """The same parameter used twice: gradients add."""
        return DirectUse(self.gradients + other.gradients)


class MatrixUse:
    """gradient = Σ_t b_t a_tᵀ in g groups: linear layers (T = 1 or a sequence) and unfolded convolutions.

    ‖gradient‖² is ‖a‖²‖b‖² for T = 1; for T > 1 the cheaper of Σ_{t,t′}⟨a_t,a_t′⟩⟨b_t,b_t′⟩ (Gram, float64) and the
    gradient itself (direct).

    Parameters
    ----------
    inputs : (m, g, T, k)
    gradients : (m, g, T, o)
    """

    def __init__(self, inputs: Tensor, gradients: Tensor) -> None:
        self.inputs, self.gradients = aligned(inputs), aligned(gradients)
        self._direct: DirectUse | None = None
        m, _, times, k = inputs.shape
        o = gradients.shape[-1]
        self.once = times == 1
        self.gram = not self.once and times * (k + o) < k * o
        if self.gram and max(m * times, times * times + k + o) > LONGEST_CHAIN:
            raise GratisError(
                f"a micro-batch of sequences is too long for the proved rounding bound ({LONGEST_CHAIN} positions); "
                "use a smaller micro_batch"
            )

    def squared_norms(self) -> Tensor:
        """An upper bound on ‖gradient of record i‖²."""
        if self.once:
            return (_norms(self.inputs) * _norms(self.gradients)).square_().sum(dim=(1, 2))
        if not self.gram:
            return self.materialised().squared_norms()
        a, b = self.inputs.double(), self.gradients.double()
        squares = ((a @ a.mT) * (b @ b.mT)).sum(dim=(1, 2, 3))
        lengths = (torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)).sum(dim=(1, 2))
        return squares.clamp_(min=0) + GRAM_SLACK * lengths.square_()

    def drop(self, bad: Tensor) -> None:
        """Set the gradients of the marked records to zero."""
        self.inputs = self.inputs.masked_fill(_rows(bad, self.inputs), 0)
        self.gradients = self.gradients.masked_fill(_rows(bad, self.gradients), 0)
        if self._direct is not None:
            self._direct.drop(bad)

    def add_weighted_sum(self, weights: Tensor, total: NDArray[np.float64], sums: BlockSums) -> None:
        """Add Σ wᵢ·gradientᵢ to total: one matrix product for each block of records."""
        if not self.once and not self.gram:
            self.materialised().add_weighted_sum(weights, total, sums)
            return
        scale = weights.to(self.gradients.dtype)
        for group, part in enumerate(total.reshape(self.inputs.shape[1], -1)):
            b, a = self.gradients[:, group], self.inputs[:, group]
            if self.once:
                sums.add_weighted_products(part, b[:, 0], a[:, 0], scale[:, None])
                continue
            scaled = b * scale[:, None, None]
            for rows in _blocks(len(b)):
                long_b, long_a = scaled[rows].flatten(0, 1).double(), a[rows].flatten(0, 1).double()
                part += (long_b.mT @ long_a).flatten().numpy()

    def materialised(self) -> DirectUse:
        """The gradient of every record."""
        if self._direct is None:
            self._direct = DirectUse((self.gradients.mT @ self.inputs).flatten(1))
        return self._direct

    def merge(self, other: MatrixUse) -> MatrixUse:
        """The same weight used twice is one longer sequence."""
        return MatrixUse(
            torch.cat((self.inputs, other.inputs), dim=2), torch.cat((self.gradients, other.gradients), dim=2)
        )


class EmbeddingUse:
    """Row v of the gradient is Σ_{t: index_t = v} b_t; the norm is Σ_{t,t′}[index_t = index_t′]⟨b_t, b_t′⟩.

    Parameters
    ----------
    index : (m, T)
    gradients : (m, T, d)
    rows : int
        Rows of the table.
    """

    def __init__(self, index: Tensor, gradients: Tensor, rows: int) -> None:
        self.index, self.gradients, self.rows = index, gradients, rows
        if max(index.numel(), index.shape[1] ** 2 + gradients.shape[-1]) > LONGEST_CHAIN:
            raise GratisError(
                f"a micro-batch of sequences is too long for the proved rounding bound ({LONGEST_CHAIN} positions); "
                "use a smaller micro_batch"
            )

    def squared_norms(self) -> Tensor:
        """An upper bound on ‖gradient of record i‖²."""
        b = self.gradients.double()
        same = self.index[:, :, None] == self.index[:, None, :]
        squares = (b @ b.mT).mul_(same).sum(dim=(1, 2))
        lengths = torch.linalg.vector_norm(b, dim=-1).sum(dim=1)
        return squares.clamp_(min=0) + GRAM_SLACK * lengths.square_()

    def drop(self, bad: Tensor) -> None:
        """Set the gradients of the marked records to zero."""
        self.gradients = self.gradients.masked_fill(_rows(bad, self.gradients), 0)

    def add_weighted_sum(self, weights: Tensor, total: NDArray[np.float64], sums: BlockSums) -> None:
        """Add Σ wᵢ·gradientᵢ to total, row by row in float64."""
        scaled = self.gradients.double() * _rows(weights, self.gradients)
        for rows in _blocks(len(scaled)):
            table = scaled.new_zeros(self.rows, scaled.shape[-1])
            total += table.index_add_(0, self.index[rows].flatten(), scaled[rows].flatten(0, 1)).flatten().numpy()

    def materialised(self) -> DirectUse:
        """The gradient of every record."""
        m, times, width = self.gradients.shape
        table = self.gradients.new_zeros(m, self.rows, width)
        table.scatter_add_(1, self.index[:, :, None].expand(m, times, width), self.gradients)
        return DirectUse(table.flatten(1))

    def merge(self, other: EmbeddingUse) -> EmbeddingUse:
        """The same table read twice is one longer sequence."""
        index = torch.cat((self.index, other.index), dim=1)
        return EmbeddingUse(index, torch.cat((self.gradients, other.gradients), dim=1), self.rows)


Use = DirectUse | MatrixUse | EmbeddingUse
Rule = Callable[[nn.Module, Tensor, Tensor], dict[str, Callable[[], Use]]]
"""(layer, input, output gradient) → for each parameter's name, how to make its use: frozen ones cost nothing."""


def merged(first: Use, second: Use) -> Use:
    """One use for a parameter that was met twice; different kinds (tied weights) meet as gradients of records."""
    if type(first) is not type(second):
        first, second = first.materialised(), second.materialised()
    return first.merge(second)  # type: ignore[arg-type]  # of the same kind


def _linear(layer: nn.Module, a: Tensor, b: Tensor) -> dict[str, Callable[[], Use]]:
    m = len(a)
    a, b = a.reshape(m, 1, -1, a.shape[-1]), b.reshape(m, 1, -1, b.shape[-1])
    return {"weight": lambda: MatrixUse(a, b), "bias": lambda: DirectUse(b.sum(dim=(1, 2)))}


def _convolution(layer: nn.Module, a: Tensor, b: Tensor) -> dict[str, Callable[[], Use]]:
    m, groups = len(a), layer.groups
    if b.ndim == 3:  # one-dimensional: an image of height 1
        a, b = a[:, :, None], b[:, :, None]
    lift = (1,) * (2 - len(layer.kernel_size))
    patches = functional.unfold(
        a,
        lift + layer.kernel_size,
        dilation=lift + layer.dilation,
        padding=(0,) * len(lift) + layer.padding,
        stride=lift + layer.stride,
    )
    patches = patches.reshape(m, groups, patches.shape[1] // groups, -1).mT
    b = b.reshape(m, groups, b.shape[1] // groups, -1).mT
    return {"weight": lambda: MatrixUse(patches, b), "bias": lambda: DirectUse(b.sum(dim=2).flatten(1))}


def _embedding(layer: nn.Module, index: Tensor, b: Tensor) -> dict[str, Callable[[], Use]]:
    m = len(index)
    index, b = index.reshape(m, -1), b.reshape(m, -1, b.shape[-1])
    if layer.padding_idx is not None:
        b = b.masked_fill((index == layer.padding_idx)[:, :, None], 0)
    return {"weight": lambda: EmbeddingUse(index, b, layer.num_embeddings)}


def _scale_and_shift(normalised: Tensor, b: Tensor, summed: tuple[int, ...]) -> dict[str, Callable[[], Use]]:
    def use(gradients: Tensor) -> Use:
        return DirectUse(gradients.sum(dim=summed) if summed else gradients)

    return {"weight": lambda: use(normalised * b), "bias": lambda: use(b)}


def _layer_norm(layer: nn.Module, a: Tensor, b: Tensor) -> dict[str, Callable[[], Use]]:
    inner = len(layer.normalized_shape)
    normalised = functional.layer_norm(a, layer.normalized_shape, None, None, layer.eps)
    return _scale_and_shift(normalised, b, tuple(range(1, b.ndim - inner)))


def _group_norm(layer: nn.Module, a: Tensor, b: Tensor) -> dict[str, Callable[[], Use]]:
    normalised = functional.group_norm(a, layer.num_groups, None, None, layer.eps)
    return _scale_and_shift(normalised, b, tuple(range(2, b.ndim)))


# Exact types only: a subclass may compute something else.
RULES: dict[type, Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
}
