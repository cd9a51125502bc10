"""The processes that train one network together: clipped sums travel to rank 0, noised gradients travel back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gratis.records.errors import GratisError

__all__ = ["Ranks", "TorchRanks"]


class Ranks:
    """One process, which is rank 0 of 1; the interface of several."""

    rank, size = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this process adds the noise and keeps the books."""
        return self.rank == 0

    def gathered(self, value: Any) -> list[Any]:
        """What every rank says, in their order."""
        return [value]

    def total(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ over the ranks, exact values: known to rank 0 alone."""
        return vector

    def shared(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rank 0's vector, in the same bits at every rank."""
        return vector

    def align(self, module: nn.Module) -> None:
        """Give every rank the parameters and buffers of rank 0's module."""

    def refuse_any(self, problem: str | None) -> None:
        """Raise at every rank if one has a problem: a rank that stopped alone would leave the others waiting."""
        found = [words for words in self.gathered(problem) if words is not None]
        if found:
            raise GratisError(found[0])


class TorchRanks(Ranks):
    """The default group of `torch.distributed`, on the gloo backend.

    **Guarantee**: what rank 0 receives is Σ_r S_r, added in float64 in an order of gloo's choice. S_r is itself a
    float64 sum of at most n_r products of blocks, so the whole has at most n = Σ n_r addends and no chain of more
    than n additions: step 4 of `network_rounding_inflation(n)` covers any order, and no other bound is needed.
    What is trusted: every rank runs this program, and who can read the network between them or the memory of rank 0
    sees exact sums.
    """

    def __init__(self) -> None:
        group = torch.distributed
        if not (group.is_available() and group.is_initialized()):
            raise GratisError("distributed=True needs torch.distributed.init_process_group('gloo') before it")
        if "gloo" not in str(group.get_backend()):
            raise GratisError("private sums travel as float64 on the CPU: use the gloo backend")
        self.rank, self.size = group.get_rank(), group.get_world_size()

    def gathered(self, value: Any) -> list[Any]:
        """What every rank says, in their order."""
        found: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(found, value)
        return found

    def total(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """One reduce to rank 0; elsewhere what comes back is a part of the sum and is thrown away."""
        tensor = torch.from_numpy(vector.copy())
        torch.distributed.reduce(tensor, dst=0, op=torch.distributed.ReduceOp.SUM)
        return tensor.numpy() if self.is_first else np.zeros_like(vector)

    def shared(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """One broadcast from rank 0."""
        tensor = torch.from_numpy(vector.copy())
        torch.distributed.broadcast(tensor, src=0)
        return tensor.numpy()

    def align(self, module: nn.Module) -> None:
        """Give every rank the parameters and buffers of rank 0's module."""
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                torch.distributed.broadcast(tensor, src=0)
