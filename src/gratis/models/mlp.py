"""Multilayer perceptron of the papers: ReLU, no biases, initial weights from a public seed. Needs the `nn` extra."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from gratis.records.checks import check_count
from gratis.records.errors import GratisError

__all__ = ["build_mlp"]


def build_mlp(widths: Sequence[int], *, seed: int = 0, variances: Sequence[float] | None = None) -> nn.Module:
    """Return Linear–ReLU–…–Linear without biases, weights N(0, 2/fan_in) (S0, Figure 1) unless variances are given.

    Parameters
    ----------
    widths : sequence of int
        Inputs, hidden widths, outputs; (784, 1000, 10) has one hidden layer.
    seed : int
        Public: initial weights must not depend on the data, and whoever repeats the run may know them.
    variances : sequence of float
        Of the entries of every layer's matrix, instead of He's 2/fan_in.

    >>> network = build_mlp([784, 1000, 10])
    >>> [tuple(p.shape) for p in network.parameters()]
    [(1000, 784), (10, 1000)]
    >>> torch.equal(network[0].weight, build_mlp([784, 1000, 10])[0].weight)
    True
    """
    sizes = [check_count("a width", width) for width in widths]
    if len(sizes) < 2:
        raise GratisError("a network needs at least an input and an output width")
    spread = [2 / inputs for inputs in sizes[:-1]] if variances is None else list(variances)
    if len(spread) != len(sizes) - 1:
        raise GratisError("a network needs one variance for each of its matrices")
    generator = torch.Generator().manual_seed(check_count("seed", seed, minimum=0))
    layers: list[nn.Module] = []
    for (inputs, outputs), variance in zip(itertools.pairwise(sizes), spread, strict=True):
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=False)
        with torch.no_grad():
            layer.weight.normal_(0.0, math.sqrt(variance), generator=generator)
        layers += [layer, nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])
