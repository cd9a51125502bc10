"""What clipping does to a Gaussian residual: how much descent is left, and how much gradient variance."""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.records.errors import GratisError

__all__ = ["clipping_factors"]

_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
# Beyond this ratio erfc(u/√2) underflows and both factors are 1 to the last digit.
_NEVER_CLIPPED = 38.0
_SERIES_BELOW = 0.05


@numba.njit(cache=True)
def clipped_moments(risk: float, clip: float) -> tuple[float, float, float, float, float, float]:
    """Return μ_c, W = ν_c·P and ∂μ/∂P, ∂W/∂P, ∂μ/∂c, ∂W/∂c at P = risk (excess plus ζ²/2), c = clip.

    W = ½·E min(r², c²) for r ~ N(0, 2P), hence ∂W/∂c = c·P(|r| > c) and ∂W/∂P = erf(u/√2) − √(2/π)·u·e^{−u²/2}.
    """
    if clip <= 0.0:
        return 0.0, 0.0, 0.0, 0.0, (_SQRT_TWO_OVER_PI / math.sqrt(2.0 * risk) if risk > 0.0 else 0.0), 0.0
    if risk <= 0.0 or clip >= _NEVER_CLIPPED * math.sqrt(2.0 * risk):
        return 1.0, risk, 0.0, 1.0, 0.0, 0.0
    scale = math.sqrt(2.0 * risk)
    u = clip / scale
    bell = _SQRT_TWO_OVER_PI * math.exp(-0.5 * u * u)
    outside = math.erfc(u * _SQRT_HALF)
    if u < _SERIES_BELOW:
        # Differences lose all digits for small u; these are their Taylor series, good to 1e−15 here.
        mu = _SQRT_TWO_OVER_PI * u * (1 - u * u * (1 / 6 - u * u * (1 / 40 - u * u / 336)))
        inside = _SQRT_TWO_OVER_PI * u**3 * (1 / 3 - u * u * (1 / 10 - u * u * (1 / 56 - u * u / 432)))
    else:
        mu = 1.0 - outside
        inside = mu - bell * u
    return (
        mu,
        risk * inside + 0.5 * clip * clip * outside,
        -bell * u / (2.0 * risk),
        inside,
        bell / scale,
        clip * outside,
    )


@numba.njit(cache=True)
def _factors(risks: NDArray[np.float64], clips: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    for i in range(risks.size):
        # ν depends on c²/P only, so scaling to P = ½ keeps tiny and huge risks away from under- and overflow.
        ratio = clips[i] / math.sqrt(2.0 * risks[i]) if risks[i] > 0.0 else (math.inf if clips[i] > 0.0 else 0.0)
        moments = clipped_moments(0.5, ratio)
        out[0, i] = moments[0]
        out[1, i] = 2.0 * moments[1]


def clipping_factors(risk: ArrayLike, clip: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (μ_c, ν_c): the shares of descent and of gradient variance that clipping leaves.

    With P = R + ζ²/2 and u = c/√(2P):

        μ_c = erf(u/√2),   ν_c = erf(u/√2) − √(2/π)·u·e^{−u²/2} + u²·erfc(u/√2).

    Both rise from 0 to 1 with c. For the residual r ~ N(0, 2P) they are E[r·clip_c(r)]/2P and E[clip_c(r)²]/2P.

    Parameters
    ----------
    risk:
        P ≥ 0, the risk including the label noise.
    clip:
        c ≥ 0, the clip norm divided by √d; may be infinite. Broadcast against risk.

    References: S2, (4.6) and Lemma B.1; docs/theory/one-pass.md, statement 6.

    >>> mu, nu = clipping_factors(0.5, [0.0, 1.0, np.inf])
    >>> mu.round(4).tolist(), nu.round(4).tolist()
    ([0.0, 0.6827, 1.0], [0.0, 0.5161, 1.0])
    """
    risks, clips = np.broadcast_arrays(np.asarray(risk, dtype=np.float64), np.asarray(clip, dtype=np.float64))
    if not (np.all(risks >= 0) and np.all(clips >= 0) and np.all(np.isfinite(risks))):
        raise GratisError("clipping_factors needs a finite risk >= 0 and a clip >= 0; check both for NaN or signs")
    out = np.empty((2, risks.size))
    # Copies: numba asks whether arrays can be written to, which numpy 2.0 answers with a warning for broadcast ones.
    _factors(np.array(risks).ravel(), np.array(clips).ravel(), out)
    return out[0].reshape(risks.shape), out[1].reshape(risks.shape)
