"""Float64 sums of float32 matrix products over blocks of records, close to the cost of one product over all of them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gratis.numerics.freed_memory import keep_freed_memory
from gratis.numerics.network_rounding import BLOCK, GROUP

__all__ = ["BlockSums", "aligned"]

_ALIGNMENT = 64  # bytes; torch's own allocations have it


def aligned(tensor: Tensor) -> Tensor:
    """The tensor in dense rows at an aligned address, copied if it is not.

    Products may round differently for another layout or alignment. Sums of neighbours must not differ by that, so no
    tensor reaches one in a layout that comes from the caller's memory or from a record that was dropped.
    """
    if tensor.is_contiguous() and tensor.data_ptr() % _ALIGNMENT == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


class BlockSums:
    """Adds products to totals; its buffers are kept, for fresh memory costs as much as the sums themselves."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        keep_freed_memory()

    def add_weighted_products(self, total: NDArray[np.float64], b: Tensor, a: Tensor, weights: Tensor) -> None:
        """Add Σᵢ wᵢ·bᵢaᵢᵀ to the flat total: one product for every `BLOCK` records, added up in `GROUP`s.

        Parameters
        ----------
        total : (o·k,)
        b : (m, o)
        a : (m, k)
        weights : (m, 1)
        """
        shape = b.shape[1], a.shape[1]
        scaled = self._room("scaled", (BLOCK, shape[0]), b.dtype)
        first, product = self._room("first", shape, b.dtype), self._room("product", shape, b.dtype)
        for group in range(0, len(b), GROUP * BLOCK):
            end = min(group + GROUP * BLOCK, len(b))
            for start in range(group, end, BLOCK):
                rows = slice(start, min(start + BLOCK, end))
                left = torch.mul(b[rows], weights[rows], out=scaled[: rows.stop - start])
                if start == group:
                    torch.mm(left.mT, a[rows], out=first)
                else:
                    # Not `addmm`: a library that started its sums from `first` would make one long chain of them.
                    first += torch.mm(left.mT, a[rows], out=product)
            _add(total, first)

    def _room(self, name: str, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        size = shape[0] * shape[1]
        found = self._buffers.get(name)
        if found is None or found.numel() < size or found.dtype != dtype:
            found = self._buffers[name] = torch.empty(size, dtype=dtype)
        return found[:size].view(shape)


def _add(total: NDArray[np.float64], part: Tensor) -> None:
    # torch adds float32 to float64 in all its threads, numpy in one, but faster there.
    if torch.get_num_threads() > 1:
        torch.from_numpy(total).add_(part.flatten())
    else:
        total += part.flatten().numpy()
