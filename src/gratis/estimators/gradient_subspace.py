"""How many directions does my private training use? A recorder of its gradients, and training in the leading ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.numerics.subspace_iteration import gram_matrix
from gratis.planning.bounds.gradient_spectrum import GradientSpectrum, refuse_unless_gradients, spectrum_of_gradients
from gratis.records.checks import check_count, check_non_negative
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["SpectrumRecorder", "Subspace", "read_gradients"]

_FORMAT = "gratis-gradients/1"


class SpectrumRecorder:
    """Keeps what `p.grad` holds at each call of `record`: 4·p bytes a step.

    **Guarantee**: none is needed for gradients that `gratis.privatise` has released. Recording them, their spectrum and
    a subspace made of them are post-processing: they cost nothing beyond that run, and a second run costs its own
    budget. Gradients that you compute yourself are exact: record them on public rows only (`noise_std=0`).

    Parameters
    ----------
    module : torch.nn.Module
        Its trainable parameters, in the order of `parameters()`.
    noise_std : float
        Noise in every coordinate: `loop.noise_std` for released gradients, 0 for exact ones of public rows.

    >>> import torch, gratis
    >>> X = np.random.default_rng(0).standard_normal((500, 3)).astype(np.float32)
    >>> module = torch.nn.Linear(3, 2)
    >>> loop = gratis.privatise(module, X, (X[:, 0] > 0).astype(int), budget=gratis.Budget(mu=5.0), steps=20,
    ...                         clip_norm=1.0)
    >>> recorder = SpectrumRecorder(module, noise_std=loop.noise_std)
    >>> optimiser = torch.optim.SGD(module.parameters(), lr=1.0)
    >>> for step in loop:
    ...     recorder.record()
    ...     optimiser.step()
    >>> recorder.spectrum().recorded
    20
    """

    def __init__(self, module: nn.Module, *, noise_std: float = 0.0) -> None:
        self._parameters = _trainable(module)
        self.noise_std = check_non_negative("noise_std", noise_std)
        self._rows: list[NDArray[np.float32]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def record(self) -> None:
        """Keep the gradients that the parameters hold now."""
        self._rows.append(_flat_gradient(self._parameters))

    @property
    def gradients(self) -> NDArray[np.float32]:
        """All recorded gradients, one a row."""
        if not self._rows:
            raise GratisError("nothing was recorded yet")
        return np.stack(self._rows)

    def spectrum(self) -> GradientSpectrum:
        """Return the singular values of what was recorded."""
        return spectrum_of_gradients(self.gradients, noise_std=self.noise_std)

    def subspace(self, k: int) -> Subspace:
        """Return the k leading directions."""
        return Subspace.of_gradients(self.gradients, k)

    def save(self, path: str | Path) -> None:
        """Write gradients and their noise for `gratis spectrum`: an .npz file."""
        with Path(path).open("wb") as file:
            np.savez(file, format=np.array(_FORMAT), gradients=self.gradients, noise_std=np.array(self.noise_std))


class Subspace:
    """k fixed directions in the space of the trainable parameters; `project` keeps the part of `p.grad` inside them.

    **Guarantee**: called after a step of `gratis.privatise`, `project` is post-processing of a released gradient: no
    record's gradient is touched. It leaves what adding noise in the k dimensions alone would have given, for the noise
    is isotropic: of its p dimensions k remain. The directions must be public, or made of what was released.

    Parameters
    ----------
    directions : (k, p)
        Orthonormal rows.

    >>> Subspace([[1.0, 0.0, 0.0]]).projected([2.0, 5.0, -7.0]).tolist()
    [2.0, 0.0, 0.0]
    """

    def __init__(self, directions: ArrayLike) -> None:
        rows = np.asarray(directions, dtype=np.float32)
        if rows.ndim != 2 or not rows.size or not np.all(np.isfinite(rows)):
            raise GratisError("directions must be a matrix of finite numbers, one direction a row")
        if np.abs(gram_matrix(rows) - np.eye(len(rows))).max() > 1e-3:
            raise GratisError("directions must be orthonormal rows")
        self.directions = rows

    @classmethod
    def of_gradients(cls, gradients: NDArray[Any], k: int) -> Subspace:
        """Return the k leading right singular vectors of gradients, one a row."""
        k = check_count("k", k)
        refuse_unless_gradients(gradients)
        values, left = np.linalg.eigh(gram_matrix(gradients))
        rank = int(np.count_nonzero(values > 1e-10 * max(values[-1], 0.0)))
        if k > rank:
            raise GratisError(f"the recorded gradients span {rank} directions, got k = {k}; record more steps")
        rows = (left[:, : -k - 1 : -1] / np.sqrt(values[: -k - 1 : -1])).T @ gradients.astype(np.float64)
        # Once more: rounding leaves weak directions slightly aslant.
        return cls(np.linalg.qr(rows.T)[0].T)

    def __len__(self) -> int:
        return len(self.directions)

    def projected(self, gradient: ArrayLike) -> NDArray[np.float32]:
        """Return the part of a flat vector inside the subspace."""
        flat = np.asarray(gradient, dtype=np.float32)
        if flat.shape != self.directions.shape[1:]:
            raise GratisError(f"expected a vector of {self.directions.shape[1]} numbers")
        return np.asarray((self.directions @ flat) @ self.directions)

    def project(self, module: nn.Module) -> None:
        """Replace the gradients that the module's parameters hold by their part inside the subspace."""
        import torch

        parameters = _trainable(module)
        inside = torch.from_numpy(self.projected(_flat_gradient(parameters)))
        for parameter, part in zip(parameters, inside.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.reshape(parameter.shape).to(parameter)

    def save(self, path: str | Path) -> None:
        """Write the directions as an .npy file."""
        with Path(path).open("wb") as file:
            np.save(file, self.directions)

    @classmethod
    def load(cls, path: str | Path) -> Subspace:
        """Read directions from an .npy file."""
        try:
            return cls(np.load(path, allow_pickle=False))
        except (OSError, ValueError, TypeError, EOFError):
            raise GratisError(f"{str(path)!r} is no .npy file of directions") from None


def read_gradients(path: str | Path) -> tuple[NDArray[np.float32], float]:
    """Return gradients and their noise from a file of `SpectrumRecorder.save`, or rows of an .npy file and 0."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found.astype(np.float32), 0.0
        with found:
            if str(found["format"]) != _FORMAT:
                raise ValueError
            return np.asarray(found["gradients"], dtype=np.float32), float(found["noise_std"])
    except (OSError, ValueError, TypeError, KeyError, EOFError):
        raise GratisError(f"{str(path)!r} holds no gradients: an .npz of SpectrumRecorder.save, or .npy rows") from None


def _trainable(module: nn.Module) -> list[Any]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise GratisError("the module has no trainable parameters: there are no gradients of it")
    return parameters


def _flat_gradient(parameters: list[Any]) -> NDArray[np.float32]:
    if any(p.grad is None for p in parameters):
        raise GratisError("a parameter holds no gradient: call this after a step of the loop")
    # NumPy knows no bfloat16.
    return np.concatenate([p.grad.detach().cpu().float().numpy().ravel() for p in parameters])
