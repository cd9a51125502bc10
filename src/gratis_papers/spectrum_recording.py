"""Record, or project, the gradients of any private training at the one place where they meet noise.

Trainers hand every mean gradient to `NoiseSource.release`; a tapped source looks at it first. So the recorder plugs
into `train_full_batch`, `train_poisson` and whatever else takes a noise source, without a line in them.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.records.checks import check_positive
from gratis.records.errors import GratisError

__all__ = ["TappedNoise"]


class _Observer(Protocol):
    def observe(self, gradient: ArrayLike) -> None:
        """Look at one gradient before noise."""


class TappedNoise(NoiseSource):
    """A noise source that shows gradients to an observer before the noise, or projects them on given directions.

    The noise stays isotropic over all coordinates and is drawn exactly as by the wrapped source, so a run with a
    recorder releases the same numbers as one without. Projection on orthonormal directions does not raise a
    sensitivity, but directions learned on private data must be paid for, which this class does not do: what it
    takes part in has no certificate (`describe` refuses).

    Parameters
    ----------
    source : NoiseSource
    recorder : GradientRecorder or DirectionAccumulator, optional
    directions : (k, p), optional
        Orthonormal rows; every gradient is replaced by its projection on them.
    scale : float
        Multiplies what the observer sees: trainers release sums in units of the clip norm, so C/(expected batch size)
        for `train_poisson` and C for `train_full_batch` give the mean clipped gradient.
    allow_non_private_diagnostics : bool
        Must be True.

    >>> class Print:
    ...     def observe(self, gradient): self.seen = gradient
    >>> tap = TappedNoise(NoiseSource.insecure(0), recorder=Print(), allow_non_private_diagnostics=True)
    >>> bool((tap.release([1.0, 2.0], 0.1) == NoiseSource.insecure(0).release([1.0, 2.0], 0.1)).all())
    True
    """

    __slots__ = ("_directions", "_recorder", "_scale", "_source")

    def __init__(
        self,
        source: NoiseSource,
        *,
        recorder: _Observer | None = None,
        directions: NDArray[Any] | None = None,
        scale: float = 1.0,
        allow_non_private_diagnostics: bool = False,
    ) -> None:
        if allow_non_private_diagnostics is not True:
            raise GratisError(
                "a tapped noise source shows gradients before noise; pass allow_non_private_diagnostics=True only if "
                "you may see the data"
            )
        self._source, self._recorder, self._directions = source, recorder, directions
        self._scale = check_positive("scale", scale)

    @property
    def is_secure(self) -> bool:
        """Never: values before noise have been seen."""
        return False

    @property
    def generator(self) -> np.random.Generator:
        """The wrapped source's generator."""
        return self._source.generator

    def normal(self, std: float, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Draw as the wrapped source does."""
        return self._source.normal(std, shape)

    def release(self, values: ArrayLike, std: float) -> NDArray[np.float64]:
        """Show, project, then release by the wrapped source."""
        exact = np.asarray(values, dtype=np.float64)
        if self._recorder is not None:
            self._recorder.observe(exact * self._scale)
        if self._directions is not None:
            # In the directions' own precision: a float64 copy of k × p numbers in every step would be waste.
            flat = exact.ravel().astype(self._directions.dtype)
            exact = ((self._directions @ flat) @ self._directions).astype(np.float64).reshape(exact.shape)
        return self._source.release(exact, std)

    def describe(self) -> NoReturn:
        """Refuse: no certificate is written for a run whose gradients were seen before noise."""
        raise GratisError("gradients of this run were seen before noise: it is a diagnostic and has no certificate")

    def __repr__(self) -> str:
        return f"TappedNoise({self._source!r}, DIAGNOSTIC)"
