"""Fixed public features of images: a two-layer wavelet scattering transform, normalised within each image.

Nothing is learned and nothing depends on other images, so the features cost no privacy (Bruna & Mallat 2013; private
linear models on them: Tramèr & Boneh 2021). Written with batched FFTs in single precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from gratis.models.random_features import StoredFeatures
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError

__all__ = ["ScatteringFeatures"]

Array = NDArray[Any]

_BATCH = 64


def _gabor(size: int, width: float, angle: float, frequency: float, slant: float) -> NDArray[np.complex128]:
    """Gaussian of standard deviation `width` times a plane wave, made periodic on size × size pixels."""
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    curvature = rotation @ np.diag([1.0, slant**2]) @ rotation.T / (2 * width**2)
    total = np.zeros((size, size), dtype=np.complex128)
    for row_shift in range(-2, 3):
        for column_shift in range(-2, 3):
            x, y = np.mgrid[0:size, 0:size] + size * np.array([row_shift, column_shift])[:, None, None]
            quadratic = curvature[0, 0] * x * x + 2 * curvature[0, 1] * x * y + curvature[1, 1] * y * y
            total += np.exp(-quadratic + 1j * frequency * (x * math.cos(angle) + y * math.sin(angle)))
    return total / (2 * math.pi * width**2 / slant)


def _folded(spectrum: Array, factor: int) -> Array:
    """Return the spectrum of the signal subsampled by `factor`: aliases added up."""
    *lead, size, _ = spectrum.shape
    small = size // factor
    return np.asarray(spectrum.reshape(*lead, factor, small, factor, small).mean(axis=(-4, -2)))


@cache
def _filters(size: int, scales: int, orientations: int) -> tuple[Array, Array]:
    """Return the spectra of the Morlet wavelets (scales, orientations, size, size) and of the low-pass filter."""
    wavelets = np.empty((scales, orientations, size, size), dtype=np.float32)
    slant = 4.0 / orientations
    for j in range(scales):
        for l in range(orientations):
            angle = l * math.pi / orientations
            wave = _gabor(size, 0.8 * 2**j, angle, 0.75 * math.pi / 2**j, slant)
            envelope = _gabor(size, 0.8 * 2**j, angle, 0.0, slant)
            # A Morlet wavelet has mean zero; its spectrum is real.
            wavelets[j, l] = fft.fft2(wave - envelope * (wave.sum() / envelope.sum())).real
    low = fft.fft2(_gabor(size, 0.8 * 2 ** (scales - 1), 0.0, 0.0, 1.0)).real.astype(np.float32)
    return wavelets, low


@cache
def _low_pass_matrix(size: int, scales: int, orientations: int, subsampled: int) -> NDArray[np.float32]:
    """Return the linear map from a (size/subsampled)² image to its smoothed, subsampled, cropped version."""
    small, step = size // subsampled, 2**scales // subsampled
    low = _folded(_filters(size, scales, orientations)[1], subsampled) * subsampled**2
    kernel = fft.ifft2(low).real
    kept = np.arange(step, small - step, step)
    rows = (kept[:, None] - np.arange(small)[None, :]) % small
    matrix = kernel[rows[:, None, :, None], rows[None, :, None, :]].reshape(len(kept) ** 2, -1)
    return np.ascontiguousarray(matrix.T, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatteringFeatures:
    """Scattering coefficients of square grey images: 1 + JL + L²J(J−1)/2 channels of (side/2^J)² values.

    Rows of X are images, side² values each, in any public scale (the normalisation below removes it). Each image's
    channels are split into `groups`; each group is centred and scaled to variance 1 (zero if constant), then all
    is scaled so that ‖φ‖ ≤ row_norm: a public bound whatever the image is.

    Parameters
    ----------
    side : pixels of an edge, a multiple of 2^scales.
    scales, orientations : J and L.
    groups : a divisor of the number of channels.
    row_norm : the norm of a row of features.

    >>> features = ScatteringFeatures()
    >>> features.n_features
    3969
    >>> image = np.random.default_rng(0).random((1, 784))
    >>> bool(np.linalg.norm(features.transform(image)) <= 1 + 1e-5)
    True
    """

    side: int = 28
    scales: int = 2
    orientations: int = 8
    groups: int = 27
    row_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("side", "scales", "orientations", "groups"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        if self.side % 2**self.scales:
            raise GratisError(
                f"scattering features need square images whose side is a multiple of {2**self.scales} pixels, "
                f"got side {self.side}"
            )
        if self.channels % self.groups:
            raise GratisError(f"groups must divide the number of channels, {self.channels}, got {self.groups}")
        check_positive("row_norm", self.row_norm)

    @property
    def channels(self) -> int:
        """1 + JL + L²J(J−1)/2."""
        j, l = self.scales, self.orientations
        return 1 + j * l + l * l * j * (j - 1) // 2

    @property
    def n_features(self) -> int:
        """Channels × positions."""
        return int(self.channels * (self.side // 2**self.scales) ** 2)

    @property
    def exact_gram(self) -> bool:
        """No: values lie on no grid."""
        return False

    @property
    def largest_square_norm(self) -> float:
        """‖φ‖² is at most this, a little above row_norm² for the rounding."""
        return 1.01 * self.row_norm**2

    @property
    def typical_square_norm(self) -> float:
        """‖φ‖² of an image that is not constant."""
        return self.row_norm**2

    def blocks(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Yield column blocks; the transform runs anew in each pass, so keep `transform` where it fits."""
        return StoredFeatures(self.n_features).blocks(self.transform(X))

    def transform(self, X: Array) -> NDArray[np.float32]:
        """Return the features (n, p) in float32; pixels that are not finite count as 0.

        Groups that overflow, as of an image of 1e20, are zero.
        """
        rows = np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] != self.side**2:
            raise GratisError(f"images must be rows of {self.side**2} pixels")
        output = np.empty((len(rows), self.n_features), dtype=np.float32)
        for start in range(0, len(rows), _BATCH):
            # A warning would tell of an extreme image, and stop the run where warnings are errors.
            with np.errstate(all="ignore"):
                batch = rows[start : start + _BATCH].astype(np.float32)
                batch = np.nan_to_num(batch, nan=0.0, posinf=0.0, neginf=0.0).reshape(-1, self.side, self.side)
                output[start : start + len(batch)] = self._normalised(self._scatter(batch))
        return output

    def _scatter(self, images: Array) -> Array:
        """Return coefficients (batch, channels, positions)."""
        from gratis.models.scattering_kernels import filtered, modulus  # compiled: half a second to import

        margin = 2**self.scales
        padded = np.pad(images, ((0, 0), (margin, margin), (margin, margin)), mode="reflect")
        batch, size = len(images), padded.shape[-1]
        wavelets, _ = _filters(size, self.scales, self.orientations)

        def smoothed(maps: Array, subsampled: int) -> Array:
            matrix = _low_pass_matrix(size, self.scales, self.orientations, subsampled)
            return np.asarray(maps.reshape(batch, -1, (size // subsampled) ** 2) @ matrix)

        found = [smoothed(padded, 1)]
        second: list[Array] = []
        spectrum = fft.fft2(padded)[:, None]
        for j in range(self.scales):
            first = modulus(fft.ifft2(filtered(spectrum, wavelets[j], 2**j), overwrite_x=True))[:, 0]
            found.append(smoothed(first, 2**j))
            if j == self.scales - 1:
                break
            spectra = fft.fft2(first)
            for k in range(j + 1, self.scales):
                # The wavelet of scale k on the coarser grid of scale j.
                coarse = np.ascontiguousarray(_folded(wavelets[k], 2**j) * 4**j)
                maps = modulus(fft.ifft2(filtered(spectra, coarse, 2 ** (k - j)), overwrite_x=True))
                second.append(smoothed(maps, 2**k))
        return np.concatenate(found + second, axis=1)

    def _normalised(self, coefficients: Array) -> Array:
        """Centre and scale each group of channels within its image."""
        grouped = coefficients.reshape(len(coefficients), self.groups, -1)
        centred = grouped - grouped.mean(axis=2, keepdims=True)
        spread = np.sqrt(np.square(centred).mean(axis=2, keepdims=True))
        usable = (spread > 1e-12) & (spread < np.inf)
        scaled = np.divide(centred, spread, out=np.zeros_like(centred), where=usable)
        # A hair below, so that rounding does not pass the public bound.
        return np.asarray(
            scaled.reshape(len(coefficients), -1) * (self.row_norm * (1 - 1e-5) / math.sqrt(self.n_features))
        )
