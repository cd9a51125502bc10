"""Clipped gradient sums of torch networks: one forward, one backward, one matrix product a layer.

Book-keeping: the forward pass keeps every layer's input a, one backward pass of the *sum* of the losses brings the
gradient b of every layer's output and no parameter gradient at all; norms follow from (a, b), the b's are scaled by the
clip factors, and one product a layer gives Σᵢ clip_C(gᵢ) (docs/theory/networks.md, statement 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from gratis.mechanisms.block_sums import BlockSums, aligned
from gratis.mechanisms.layer_rules import RULES, DirectUse, Use, merged
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError

__all__ = ["ClippedGradientSum", "Loss", "cross_entropy"]

Loss = Callable[[Tensor, Tensor], Tensor]
_MIXING = (nn.modules.batchnorm._BatchNorm,)
_SMALLEST_WEIGHT = 1e-30
_EXACT = ("none", "ieee")
_PRECISE = (torch.float32, torch.float64)
_FULL_PRECISION = "private sums are proved for float32 and float64 only (no autocast)"
_FAILED = (
    "the module or loss failed on a micro-batch of records; nothing of its message is shown because it may quote them"
)
_NOT_FLOATING = "that are not floating point (they must be, unless the module embeds or converts integers)"
_DROPOUT = (nn.modules.dropout._DropoutNd,)


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy of every record; a label outside 0 … k−1 gives NaN, so that the record adds nothing."""
    classes = labels.long().clamp(0, scores.shape[1] - 1)
    valid = classes == labels
    losses = functional.cross_entropy(scores, classes, reduction="none")
    return torch.where(valid, losses, torch.nan)


class _Tap(torch.autograd.Function):
    """The identity; its backward keeps the gradient that passes. The anchor makes the first layer's output tracked."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor, visit: _Visit, place: int) -> Any:
        ctx.visit, ctx.place = visit, place
        return output.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.visit.gradients[ctx.place] = gradient
        return (gradient if ctx.needs_input_grad[0] else None), None, None, None


class _Visit:
    """One call of a layer: what went in, and the gradient of what came out."""

    __slots__ = ("arguments", "gradients", "keywords", "module")

    def __init__(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.module, self.arguments, self.keywords = module, arguments, keywords
        self.gradients: dict[int, Tensor] = {}


class ClippedGradientSum:
    """Σᵢ clip_C(∇ℓᵢ) over records, for a module whose output for a record depends on that record alone.

    **Guarantee**: every record adds a vector of ℓ2 norm at most C over all trainable parameters together, whatever
    its values are; records with a non-finite loss or gradient add zero. So the sum has ℓ2 sensitivity κC, and κC·r
    in floating point with r = `network_rounding_inflation(n, sensitivity=κ)`. What is taken on trust: that module
    and loss treat records one by one and raise on none (if they do, their message is not shown). Batch
    normalisation is refused; other mixing, parameters used outside their layer and layers that read the batch along
    another dimension are caught by `check`, which compares with gradients of single synthetic records; mixing that
    only some values trigger is not detected.

    Parameters
    ----------
    module : torch.nn.Module
        Its trainable parameters (requires_grad) are those of the gradient, in the order of `parameters()`.
    loss : callable
        (outputs, targets) → losses of shape (m,).
    clip_norm : float
        C.
    micro_batch : int
        Records in one forward pass; bounds the memory, does not change the result beyond rounding.

    Reference: Goodfellow 2015 (norms of linear layers); Li et al. 2022 (sequences); Bu et al. 2023 (book-keeping).

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> _ = nn.init.zeros_(layer.weight)
    >>> squared = lambda outputs, targets: 0.5 * (outputs[:, 0] - targets) ** 2
    >>> gradient = ClippedGradientSum(layer, squared, clip_norm=1.0)
    >>> gradient(np.array([[3.0, 4.0], [0.0, 0.1]]), np.array([-10.0, -1.0])).round(3)
    array([0.6, 0.9])
    """

    def __init__(
        self, module: nn.Module, loss: Loss = cross_entropy, *, clip_norm: float, micro_batch: int = 2048
    ) -> None:
        if not isinstance(module, nn.Module):
            raise GratisError(f"the module must be a torch.nn.Module, got a {type(module).__name__}")
        self.module, self.loss = module, loss
        self.clip_norm = check_positive("clip_norm", clip_norm)
        if not 1e-12 <= self.clip_norm <= 1e12:
            raise GratisError("clip_norm must lie between 1e-12 and 1e12: float32 sums lose it otherwise")
        self.micro_batch = check_count("micro_batch", micro_batch)
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        _refuse(module, self.parameters)
        self._ends = np.cumsum([0, *(p.numel() for p in self.parameters)])
        self._position = {p: i for i, p in enumerate(self.parameters)}
        self._units = list(_units(module))
        self._visits: list[_Visit] | None = None
        self._anchor: Tensor | None = None
        self._sums = BlockSums()

    @property
    def size(self) -> int:
        """Number of trainable parameters."""
        return int(self._ends[-1])

    def refuse_changes(self) -> None:
        """Refuse a module that is no longer the one this sum was made for: other parameters, or ones that mix."""
        now = [p for p in self.module.parameters() if p.requires_grad]
        if [*map(id, now)] != [*map(id, self.parameters)] or [*map(id, _units(self.module))] != [*map(id, self._units)]:
            raise GratisError("the module's trainable parameters or layers are no longer those that were checked")
        _refuse(self.module, now)

    def split(self, vector: NDArray[np.float64]) -> list[Tensor]:
        """Cut a flat vector into tensors shaped and typed like the parameters."""
        parts = (vector[a:b] for a, b in zip(self._ends[:-1], self._ends[1:], strict=True))
        return [torch.from_numpy(v).to(p.dtype).reshape(p.shape) for v, p in zip(parts, self.parameters, strict=True)]

    def __call__(self, X: Tensor, y: Tensor, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """Return the flat clipped sum over all records, or over those listed in `rows`."""
        try:
            return self._sum(X, y, rows)
        except GratisError:
            raise
        except Exception:
            pass
        # Raised outside the handler, so that not even the context of this error holds the other one.
        raise GratisError(_FAILED)

    def _sum(self, X: Tensor, y: Tensor, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        _refuse_fast_products()
        total = np.zeros(self.size)
        count = len(X) if rows is None else len(rows)
        with self._frozen():
            for start in range(0, count, self.micro_batch):
                part = slice(start, min(start + self.micro_batch, count))
                chosen = part if rows is None else rows[part]
                self._add_micro_batch(self._inputs(X[chosen]), _tensor(y[chosen]), total)
        return total

    def check(self, X: Tensor, y: Tensor) -> None:
        """Compare with single-record gradients on synthetic records of X's and y's shapes and types; refuse on doubt.

        Only shapes and types of X and y are read. Synthetic batches of 1, 2 and 3 records must give the clipped
        sums that autograd gives record by record, and must leave the module's buffers alone.
        """
        if self.loss is cross_entropy and _is_floating(y):
            raise GratisError("labels for cross-entropy must be whole numbers 0 … k−1 of an integer type, not floats")
        generator = torch.Generator().manual_seed(0)
        before = [b.clone() for b in self.module.buffers()]
        try:
            agrees = all(self._agrees(X, y, count, generator) for count in (1, 2, 3))
        except GratisError:
            raise
        except Exception as error:
            # Synthetic records only: the message cannot hold private values.
            kind = "of this shape" if _is_floating(X) else _NOT_FLOATING
            raise GratisError(f"the module or loss failed on synthetic records {kind}: {error}") from error
        finally:
            unchanged = True
            for buffer, kept in zip(self.module.buffers(), before, strict=True):
                unchanged &= torch.equal(buffer, kept)
                buffer.copy_(kept)
        if not unchanged:
            raise GratisError("the module changes its buffers in the forward pass: they would hold private values")
        if not agrees:
            raise GratisError(
                "per-record gradients of this module differ from gradients of single records: it mixes records, uses "
                "a parameter outside its layer, or has the batch along another dimension"
            )

    def _agrees(self, X: Tensor, y: Tensor, count: int, generator: torch.Generator) -> bool:
        inputs, targets = self._synthetic(X, y, count, generator)
        singles = []
        for i in range(count):
            losses = self.loss(self.module(inputs[i : i + 1]), targets[i : i + 1])
            parts = torch.autograd.grad(losses.sum(), self.parameters, allow_unused=True, materialize_grads=True)
            singles.append(parts)
        norms = [math.hypot(*(float(torch.linalg.vector_norm(part)) for part in parts)) for parts in singles]
        # The longest gradient is clipped to half, so that weights differ.
        clip_norm = 0.5 * max(norms)
        if not 0 < clip_norm < math.inf:
            raise GratisError("the loss of synthetic records does not depend on the trainable parameters")
        probe = ClippedGradientSum(self.module, self.loss, clip_norm=clip_norm, micro_batch=count)
        weights = [min(1.0, clip_norm / norm) if norm > 0 else 1.0 for norm in norms]
        for place, found in enumerate(probe.split(probe._sum(inputs, targets))):
            rows = [weight * parts[place] for weight, parts in zip(weights, singles, strict=True)]
            allowed = 1e-3 * sum(float(torch.linalg.vector_norm(row)) for row in rows) + 1e-5 * clip_norm
            # Written so that NaN disagrees.
            if not float(torch.linalg.vector_norm(found - sum(rows))) <= allowed:
                return False
        return True

    def _synthetic(self, X: Tensor, y: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        example, target = self._inputs(X[:1]), _tensor(y[:1])
        shape = (count, *example.shape[1:])
        if example.is_floating_point():
            inputs = torch.randn(shape, generator=generator, dtype=example.dtype)
        else:
            tables = [m.num_embeddings for m in self.module.modules() if isinstance(m, nn.Embedding)]
            inputs = torch.randint(min(tables, default=2), shape, generator=generator, dtype=example.dtype)
        shape = (count, *target.shape[1:])
        if target.is_floating_point():
            return inputs, torch.randn(shape, generator=generator, dtype=target.dtype)
        with torch.no_grad():
            outputs = self.module(inputs)
        classes = outputs.shape[1] if outputs.ndim > 1 else 2
        return inputs, torch.randint(classes, shape, generator=generator, dtype=target.dtype)

    def _inputs(self, values: Tensor) -> Tensor:
        tensor = _tensor(values)
        return aligned(tensor.to(self.parameters[0].dtype)) if tensor.is_floating_point() else tensor

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """Watch the layers, and let autograd compute no parameter gradient."""
        handles = []
        try:
            for table in self.module.modules():
                if isinstance(table, nn.Embedding):
                    handles.append(table.register_forward_pre_hook(self._before_embedding))
            for unit in self._units:
                handles.append(unit.register_forward_hook(self._after, with_kwargs=True))
            for parameter in self.parameters:
                parameter.requires_grad_(False)
            yield
        finally:
            for handle in handles:
                handle.remove()
            for parameter in self.parameters:
                parameter.requires_grad_(True)

    def _before_embedding(self, module: nn.Module, arguments: tuple[Any, ...]) -> Any:
        # An index outside the table must not raise, which would tell of a record: it counts as index 0. Nothing
        # more is needed, for the record stays clipped; to drop it one would have to know whose index it was, which a
        # flattened or transposed index does not say.
        if not arguments:
            raise GratisError("an Embedding must be called with its index as a positional argument")
        index = arguments[0]
        outside = (index < 0) | (index >= module.num_embeddings)
        return (index.masked_fill(outside, 0), *arguments[1:])

    def _after(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Tensor) -> Any:
        if self._visits is None:
            return output
        outputs = output if isinstance(output, tuple) else (output,)
        if (
            not all(o is None or torch.is_tensor(o) for o in outputs)
            or not arguments
            or any(map(torch.is_tensor, keywords.values()))
        ):
            raise GratisError(
                f"a {type(module).__name__} with parameters must map positional tensors to a tensor or a tuple of "
                "tensors, with records along the first dimension"
            )
        visit = _Visit(module, tuple(a.detach() if torch.is_tensor(a) else a for a in arguments), keywords)
        self._visits.append(visit)
        tapped = tuple(
            _Tap.apply(o, self._anchor, visit, place) if o is not None and o.is_floating_point() else o
            for place, o in enumerate(outputs)
        )
        return tapped if isinstance(output, tuple) else tapped[0]

    def _add_micro_batch(self, inputs: Tensor, targets: Tensor, total: NDArray[np.float64]) -> None:
        count = len(inputs)
        self._visits, self._anchor = [], torch.zeros((), requires_grad=True)
        with torch.enable_grad():
            losses = self.loss(self.module(inputs), targets)
        visits, self._visits = self._visits, None
        if losses.shape != (count,):
            raise GratisError("the loss must return one value for each record, shape (m,), not their mean or sum")
        if not losses.requires_grad:
            return
        torch.autograd.grad(losses.sum(), self._anchor, allow_unused=True)
        uses: dict[nn.Parameter, Use] = {}
        while visits:
            visit = visits.pop()
            for parameter, use in _uses_of(visit, count, self._position):
                uses[parameter] = merged(uses[parameter], use) if parameter in uses else use
        if not uses:
            return
        norms = sum(use.squared_norms() for use in uses.values()).sqrt_()
        weights = torch.clamp(self.clip_norm / norms, max=1.0)
        # Weights that float32 cannot hold to full precision would not bound the record: it adds nothing.
        bad = ~torch.isfinite(norms + losses.detach()) | ~(weights > _SMALLEST_WEIGHT)
        weights.masked_fill_(bad, 0)
        drop = bool(bad.any())
        for parameter, use in uses.items():
            if drop:
                use.drop(bad)
            place = self._position[parameter]
            use.add_weighted_sum(weights, total[self._ends[place] : self._ends[place + 1]], self._sums)


def _is_floating(values: Tensor) -> bool:
    return bool(values.dtype.is_floating_point if torch.is_tensor(values) else values.dtype.kind == "f")


def _tensor(values: Any) -> Tensor:
    if torch.is_tensor(values):
        return values
    # torch warns of read-only memory (memory maps, shared arrays): one micro-batch of it is copied.
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def _refuse_fast_products() -> None:
    """Refuse settings of torch under which a float32 product is computed in less than float32."""
    of_products = getattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision", None)
    fast = torch.get_float32_matmul_precision() != "highest" if of_products is None else of_products not in _EXACT
    if fast or torch.is_autocast_enabled("cpu"):
        raise GratisError(f"torch is set to compute products in half precision; {_FULL_PRECISION}")


def _refuse(module: nn.Module, parameters: list[nn.Parameter]) -> None:
    if not parameters:
        raise GratisError("the module has no trainable parameters")
    for parameter in parameters:
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise GratisError("a lazy module must see its input shape before private training; run it once on zeros")
        if parameter.dtype not in _PRECISE or parameter.device.type != "cpu":
            raise GratisError("trainable parameters must be float32 or float64 on the CPU")
    for child in module.modules():
        name = type(child).__name__
        if isinstance(child, nn.EmbeddingBag):
            raise GratisError(f"{name} is not supported in private training; use an Embedding and the mean of its rows")
        if isinstance(child, _MIXING) and (child.training or child.running_mean is None):
            raise GratisError(f"{name} mixes records of a batch and cannot be trained privately; use GroupNorm instead")
        if isinstance(child, _DROPOUT) and child.training and child.p > 0:
            raise GratisError(f"{name} is not supported in private training; set p=0 or call eval() on it")
        if isinstance(child, nn.Embedding) and (child.max_norm is not None or child.scale_grad_by_freq or child.sparse):
            raise GratisError("Embedding must have max_norm=None, scale_grad_by_freq=False, sparse=False")


def _units(module: nn.Module) -> Iterator[nn.Module]:
    """The layers to watch: those with a rule, and the outermost others that own trainable parameters."""
    own = [p for p in module.parameters(recurse=False) if p.requires_grad]
    if own:
        yield module
    else:
        for child in dict.fromkeys(module.children()):
            yield from _units(child)


def _has_rule(module: nn.Module) -> bool:
    if type(module) in (nn.Conv1d, nn.Conv2d):
        return module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return type(module) in RULES


def _uses_of(visit: _Visit, count: int, known: dict[nn.Parameter, int]) -> Iterator[tuple[nn.Parameter, Use]]:
    if not visit.gradients:
        return
    tensors = [a for a in visit.arguments if torch.is_tensor(a)] + list(visit.gradients.values())
    if any(tensor.ndim == 0 or len(tensor) != count for tensor in tensors):
        raise GratisError(f"{type(visit.module).__name__} must have the records along the first dimension")
    if any(tensor.is_floating_point() and tensor.dtype not in _PRECISE for tensor in tensors):
        raise GratisError(f"{type(visit.module).__name__} computes in half precision; {_FULL_PRECISION}")
    trainable = {name: p for name, p in visit.module.named_parameters() if p in known}
    if _has_rule(visit.module):
        rules = RULES[type(visit.module)](visit.module, visit.arguments[0], visit.gradients[0])
        yield from ((parameter, rules[name]()) for name, parameter in trainable.items())
    else:
        gradients = _per_record(visit, trainable)
        yield from ((parameter, DirectUse(gradients[name])) for name, parameter in trainable.items())


def _per_record(visit: _Visit, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Per-record gradients of a module without a rule: vmap over vector-Jacobian products with its own b."""
    tensors = [torch.is_tensor(a) for a in visit.arguments]
    places = sorted(visit.gradients)

    def pull(gradients: tuple[Any, ...], *arguments: Any) -> Any:
        def forward(values: dict[str, Tensor]) -> Tensor:
            single = tuple(a[None] if t else a for a, t in zip(arguments, tensors, strict=True))
            output = torch.func.functional_call(visit.module, values, single, visit.keywords)
            return tuple((output if isinstance(output, tuple) else (output,))[place][0] for place in places)

        return torch.func.vjp(forward, parameters)[1](gradients)[0]

    lanes = (0, *(0 if t else None for t in tensors))
    gradients = tuple(visit.gradients[place] for place in places)
    # Fused attention has no batching rule.
    with sdpa_kernel(SDPBackend.MATH):
        return dict(torch.func.vmap(pull, in_dims=lanes)(gradients, *visit.arguments))
