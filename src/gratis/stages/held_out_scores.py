"""Scores on held-out rows as one Gaussian release of bounded sums: class-wise histograms of scores, or of errors.

Everything after the release is post-processing, the ranges too: noise and sampling are drawn again around what was
released, and the spread of the scores is what they report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.records.predictions import Estimate

__all__ = ["ClassSums", "ErrorSums", "ScoreSums", "held_out_event"]

Array = NDArray[np.float64]

# Log-odds of a class, cut in halves up to 4 and in ones up to 8: rare classes have all their scores far below 0.
_EDGES = np.concatenate([[-8.0, -7.0, -6.0, -5.0], np.arange(-4.0, 4.1, 0.5), [5.0, 6.0, 7.0, 8.0]])
_MIDDLES = np.concatenate([[-8.5], (_EDGES[1:] + _EDGES[:-1]) / 2, [8.5]])
_BINS = len(_MIDDLES)
_WIDEST = 3.0  # errors and deviations beyond this many (released) scales of the target count as this many
_DRAWS = 200
# Parts of the squared norm of a record's entry, by a calculation of the noise that each score is left with at 1000 rows
# and ε = 1; other splits were not tried.
_ANSWERS, _SCORES, _LOSS = 0.35, 0.40, 0.25
_ERRORS = np.sqrt([0.05, 0.35, 0.35, 0.05, 0.20])  # count, z², r², |z|, |r|


@dataclass(frozen=True, slots=True)
class ClassSums:
    """Accuracy, balanced accuracy, AUC and log loss of a classifier, from one release.

    A record of class y with probabilities p enters with numbers ≥ 0 whose squares add up to at most 1: one of the
    2K cells (y, answered right or not); a cell of the histogram of y's scores, in log-odds; its log loss, clipped at
    log K + 3. With K > 2 classes its scores of the other classes enter K−1 further histograms, at 1/√(K−1) each, for
    the AUC of each class against the rest.

    **Sensitivity**: 1 under zero-out; √2 under replace-one, as ‖u−v‖² ≤ ‖u‖² + ‖v‖² for vectors without negative
    entries.
    """

    n_classes: int

    @property
    def largest_loss(self) -> float:
        """Where a record's log loss is clipped."""
        return math.log(self.n_classes) + 3.0

    def sensitivity(self, neighbouring: Neighbouring) -> float:
        """How far one record moves the sums."""
        return 1.0 if neighbouring is Neighbouring.ZERO_OUT else math.sqrt(2.0)

    @property
    def length(self) -> int:
        """How many numbers are released."""
        own = 2 if self.n_classes == 2 else 2 * self.n_classes
        return 2 * self.n_classes + own * _BINS + 1

    def entries(self, scores: Array, y: Array) -> Array:
        """Σ of what these records contribute; scores are (n, K) log-probabilities up to a constant in each row.

        Labels are positions of classes; a record with any other label, or without scores, contributes nothing.
        """
        k = self.n_classes
        with np.errstate(all="ignore"):
            logs = scores - logsumexp(scores, axis=1, keepdims=True)
            valid = (y >= 0) & (y < k) & (y == np.floor(y)) & ~np.isnan(logs).any(axis=1)
            logs, label = np.minimum(logs[valid], 0.0), y[valid].astype(np.int64)
            # log p − log(1 − p), and 1 − p from the others: exact where p is near 1.
            odds = np.nan_to_num(logs - np.log(-np.expm1(logs)), nan=0.0)
            place = np.searchsorted(_EDGES, odds, side="right")
            loss = np.clip(np.nan_to_num(-logs[np.arange(len(label)), label], nan=np.inf), 0.0, self.largest_loss)
        right = logs.argmax(axis=1) == label
        answers = np.bincount(2 * label + right, minlength=2 * k).astype(np.float64)
        if k == 2:
            histograms = np.bincount(label * _BINS + place[:, 1], minlength=2 * _BINS).astype(np.float64)
        else:
            own = place[np.arange(len(label)), label]
            mine = np.bincount(label * _BINS + own, minlength=k * _BINS).astype(np.float64)
            everyone = np.bincount((np.arange(k) * _BINS + place).ravel(), minlength=k * _BINS) - mine
            histograms = np.concatenate([mine, everyone / math.sqrt(k - 1)]) / math.sqrt(2.0)
        parts = (answers, histograms, [loss.sum() / self.largest_loss])
        return np.concatenate([w * np.asarray(part) for w, part in zip(self._weights, parts, strict=True)])

    @property
    def _weights(self) -> tuple[float, float, float]:
        return math.sqrt(_ANSWERS), math.sqrt(_SCORES), math.sqrt(_LOSS)

    def estimates(self, noisy: Array, noise_std: float, rows: int) -> list[Estimate]:
        """Scores with ranges of about 95 % over noise and sampling; of each class as much as the noise lets through."""
        k, (a, s, l) = self.n_classes, self._weights
        answers, histograms = noisy[: 2 * k].reshape(k, 2) / a, self._histograms(noisy[2 * k : -1]) / s
        # The deviation of the noise in a bin, of those inside a class and of those outside.
        bars = noise_std / s * (np.ones(2) if k == 2 else np.sqrt([2.0, 2.0 * (k - 1)]))[:, None, None]
        total, hopeless = float(answers.sum()), 2 * noise_std / a * math.sqrt(2 * k)
        used = float(rows) if total > rows - 1.5 * hopeless else max(1.0, total)
        found = {name: float(value) for name, value in _class_scores(answers, histograms).items()}
        found["log_loss"] = max(0.0, float(noisy[-1]) / l * self.largest_loss / used)
        rng = np.random.default_rng(0)  # of public randomness: what was released is spread again, nothing else
        likely = _possible(histograms, _sizes(answers))
        drawn = _class_scores(
            rng.poisson(np.maximum(answers, 0.0), (_DRAWS, *answers.shape))
            + noise_std / a * rng.normal(size=(_DRAWS, *answers.shape)),
            rng.poisson(likely, (_DRAWS, *likely.shape)) + bars * rng.normal(size=(_DRAWS, *likely.shape)),
        )
        spreads = {name: float(np.std(values)) for name, values in drawn.items()}
        spreads["log_loss"] = math.hypot(
            noise_std / l * self.largest_loss / used, self._loss_deviation(likely) / math.sqrt(used)
        )
        if total < hopeless:  # a total below its noise says nothing
            spreads = dict.fromkeys(spreads, self.largest_loss)
        limits = {"log_loss": self.largest_loss, "base_log_loss": math.log(k)}
        return [
            _estimate(name, value, spreads[name], 0.0, limits.get(name, 1.0), rows) for name, value in found.items()
        ]

    def _histograms(self, noisy: Array) -> Array:
        """Histograms (inside, outside) × classes × bins, in records; of two classes the second is enough."""
        if self.n_classes == 2:
            return noisy.reshape(2, 1, _BINS)[::-1]
        both = math.sqrt(2.0) * noisy.reshape(2, self.n_classes, _BINS)
        return both * np.array([1.0, math.sqrt(self.n_classes - 1)])[:, None, None]

    def _loss_deviation(self, bars: Array) -> float:
        """Deviation of a record's loss, from the histogram of its class's score."""
        # Two classes: the log-odds of the second are those of the first with the other sign.
        odds = np.stack([_MIDDLES, -_MIDDLES])[:, None] if self.n_classes == 2 else _MIDDLES
        share = bars if self.n_classes == 2 else bars[0]
        loss = np.minimum(-np.log(expit(odds)), self.largest_loss)
        share = share / max(float(share.sum()), 1.0)
        return math.sqrt(max(float((share * loss**2).sum() - (share * loss).sum() ** 2), 0.01))


@dataclass(frozen=True, slots=True)
class ErrorSums:
    """R² and mean absolute error of a regressor, from one release.

    A record enters with (1, z²/9, r²/9, |z|/3, |r|/3), z the target's deviation from its released centre and r the
    model's error, both in released scales and clipped to ±3, each times a public weight; their squares add up to 1.

    **Sensitivity**: 1 under both relations: every entry lies between 0 and its weight.
    """

    def sensitivity(self, neighbouring: Neighbouring) -> float:
        """How far one record moves the sums."""
        return 1.0

    @property
    def length(self) -> int:
        """How many numbers are released."""
        return len(_ERRORS)

    def entries(self, deviations: Array, errors: Array) -> Array:
        """Σ of what these records contribute, of z and r in scales; a record with NaN in either contributes nothing."""
        valid = ~(np.isnan(deviations) | np.isnan(errors))
        both = np.clip(np.column_stack([deviations, errors])[valid], -_WIDEST, _WIDEST) / _WIDEST
        sums = [float(len(both)), *np.square(both).sum(axis=0), *np.abs(both).sum(axis=0)]
        return np.asarray(_ERRORS * sums)

    def estimates(self, noisy: Array, noise_std: float, rows: int, scale: float) -> list[Estimate]:
        """Scores with ranges of about 95 % over noise and sampling; a total below its noise says nothing."""
        count, squares, errors, deviation, error = noisy / _ERRORS
        noises = noise_std / _ERRORS
        used = float(rows) if count > rows - 3 * noises[0] else max(1.0, float(count))
        errors = max(0.0, float(errors))
        if squares < 2 * noises[1]:
            value, spread = 0.0, 1.0
        else:
            ratio = errors / float(squares)
            value = max(-1.0, 1 - ratio)
            # Squares of roughly normal errors vary by √2 of their mean.
            spread = math.hypot(1, ratio) * float(noises[1] / squares) + ratio * math.sqrt(2 / used)
        found = [_estimate("r_squared", value, spread, -1.0, 1.0, rows)]
        for name, total, second, noise in (
            ("mean_absolute_error", error, errors, noises[4]),
            ("base_mean_absolute_error", deviation, squares, noises[3]),
        ):
            mean = min(1.0, max(0.0, float(total) / used))
            sampling = math.sqrt(max(float(second) / used - mean**2, 0.0) / used)
            unit = scale * _WIDEST
            found.append(_estimate(name, unit * mean, unit * math.hypot(noise / used, sampling), 0.0, unit, rows))
        return found


ScoreSums = ClassSums | ErrorSums


def held_out_event(sums: ScoreSums, rows: int, *, mu: float, neighbouring: Neighbouring) -> GaussianRelease:
    """The event of releasing the sums once at `mu`-GDP."""
    exact = sums.sensitivity(neighbouring)
    sensitivity = exact * rounding_inflation(rows, sums.length, sensitivity=exact)
    return GaussianRelease(
        sensitivity=sensitivity, noise_std=sensitivity / mu, neighbouring=neighbouring, label="score on held-out rows"
    )


def _sizes(answers: Array) -> Array:
    """Records (inside, outside) × classes; of two classes the second."""
    counts = np.maximum(answers.sum(axis=-1), 1.0)
    both = np.stack([counts, counts.sum(axis=-1, keepdims=True) - counts], axis=-2)
    return both[..., 1:] if counts.shape[-1] == 2 else both


def _class_scores(answers: Array, histograms: Array) -> dict[str, Array]:
    """Scores from noisy cells (…, K, [wrong, right]) and histograms (…, [inside, outside], classes, bins)."""
    counts = np.maximum(answers.sum(axis=-1), 1.0)
    share = counts / counts.sum(axis=-1, keepdims=True)
    all_right = answers[..., 1].sum(axis=-1) / np.maximum(answers.sum(axis=(-1, -2)), 1.0)
    return {
        "accuracy": np.clip(all_right, 0.0, 1.0),
        "balanced_accuracy": (np.clip(answers[..., 1], 0.0, counts) / counts).mean(axis=-1),
        "auc": _auc(histograms, _sizes(answers)),
        "log_loss": np.zeros(counts.shape[:-1]),
        "base_rate": share.max(axis=-1),
        "base_log_loss": -(share * np.log(share)).sum(axis=-1),
    }


def _auc(histograms: Array, sizes: Array) -> Array:
    """Share of pairs (inside, outside) that are in order, its mean over classes; pairs in one bin count half.

    The noise is left as it is: making the bins positive first would pull the score to one half.
    """
    bars = histograms + (sizes - histograms.sum(axis=-1))[..., None] / _BINS
    inside, outside = bars[..., 0, :, :], bars[..., 1, :, :]
    pairs = (inside * (np.cumsum(outside, axis=-1) - outside / 2)).sum(axis=-1)
    return np.clip((pairs / np.maximum(sizes.prod(axis=-2), 1.0)).mean(axis=-1), 0.0, 1.0)


def _possible(histograms: Array, sizes: Array) -> Array:
    """Noisy histograms as what they can be: not negative, and adding up to the counts of their classes."""
    flat = [_on_simplex(*pair) for pair in zip(histograms.reshape(-1, _BINS), sizes.ravel(), strict=True)]
    return np.reshape(flat, histograms.shape)


def _on_simplex(values: Array, total: float) -> Array:
    """The nearest vector without negative entries that has this sum."""
    ordered = np.sort(values)[::-1]
    above = (np.cumsum(ordered) - total) / np.arange(1, len(values) + 1)
    return np.maximum(values - above[np.flatnonzero(ordered > above)[-1]], 0.0)


def _estimate(quantity: str, value: float, spread: float, lowest: float, highest: float, rows: int) -> Estimate:
    return Estimate(
        quantity=quantity,
        value=value,
        low=min(value, max(lowest, value - 2 * spread)),
        high=max(value, min(highest, value + 2 * spread)),
        confidence=0.95,
        samples=rows,
        method="Gaussian release on held-out rows; the range covers its noise and the sampling",
    )
