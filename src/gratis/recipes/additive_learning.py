"""Coefficients from private gradients: after each, the fit moves to the posterior mean given all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.recipes.additive_plan import AdditivePlan
from gratis.stages.class_curvature import class_responses
from gratis.stages.clipped_gradients import GradientsPlan, Residuals, release_gradient
from gratis.stages.columns import Columns
from gratis.stages.curve_basis import CurveBasis
from gratis.stages.gradient_posterior import GradientHistory, Preconditioner, precondition
from gratis.stages.pair_screening import ScreenedPair

__all__ = ["AdditiveState", "GradientLearner", "Trust"]

Array = NDArray[np.float64]

_UNEXPLAINED = 0.5  # share of the target's variance that sampling noise is reckoned with
_KEPT = 1e-2  # least variance of a group in the basis of gradients, in units of the first guess
# The ridge: first times the unknown part of the second moments, then by what gradients do (Levenberg, Marquardt).
# Validation parts of California, bike_hour, cpu_act, white wine, airfoil, house_16H: .045 … .15 do alike.
_RIDGE, _LEAST_RIDGE = 0.09, 0.1
_FALL = 0.7  # of the least energy of gradients so far; above it the next step is smaller
_CLEARLY = 3.0  # deviations of an energy
# What noise beside that of the gradients does to curves, as a share of what shrinking leaves open. By simulation on six
# synthetic cells of benchmarks/shape_bands.py (30 to 60 replicates, three of classes): with 0 they cover .88 to .96.
# Of curves beside pairs all of it: with a third they covered .93 and .90 in two cells.
_BESIDE, _BESIDE_PAIRS = 1 / 3, 1.0


@dataclass(slots=True)
class AdditiveState:
    """What is learnt so far: coefficients, variances of groups, and the history of gradients behind them."""

    parameters: Array
    variances: Array
    history: GradientHistory
    first: Array  # gradient at 0
    ridge: float
    gain: float = 0.0  # by how much the mean squared error fell, as far as gradients can tell
    frame: Preconditioner | None = None  # of the last gradient

    @classmethod
    def at_zero(cls, basis: CurveBasis, outputs: int, unknown: float) -> AdditiveState:
        """Start, with second moments of which `unknown` bounds the error."""
        zero = np.zeros((basis.width, outputs))
        variances = np.full((outputs, len(basis.groups()[1])), 1 / basis.mean_square())
        return cls(zero, variances, GradientHistory(basis.width, outputs), zero, _ridge(unknown))

    def widened(self, basis: CurveBasis, found: list[ScreenedPair], unknown: float) -> AdditiveState:
        """The state with the features of pairs, whose variances start from what the screening saw."""
        more = ((0, basis.width - len(self.parameters)), (0, 0))
        within = basis.within()[1 + basis.columns.n_columns :]
        gains = [max(pair.gain, 1e-4) / max(float(np.trace(w)), 1e-6) for pair, w in zip(found, within, strict=True)]
        outputs = len(self.variances)
        return AdditiveState(
            np.pad(self.parameters, more),
            np.hstack([self.variances, np.tile(np.array(gains).reshape(1, -1) / outputs, (outputs, 1))]),
            self.history.widened(basis.width), np.pad(self.first, more), _ridge(unknown),
        )  # fmt: skip

    def explained(self, moments: Array, covariances: list[Array]) -> tuple[float, float, float]:
        """Variance of the scores, the part of it that is noise, and what they take off the error."""
        signal = float(np.einsum("ik,ij,jk->", self.parameters, moments, self.parameters))
        unknown = float(sum(np.einsum("ij,ij->", cov, moments) for cov in covariances))
        return signal, unknown, self.gain


@dataclass(slots=True)
class Trust:
    """How far second moments are trusted: the ridge on them (Levenberg, Marquardt), by energies of noisy gradients.

    A gradient that does not fall says that steps went too far: the ridge rises. One clearly below all others lowers it.

    >>> trust = Trust(0.1, smallest=0.01)
    >>> trust.judge(-0.8, 1.0), trust.judge(0.2, 0.03), trust.judge(0.7, 0.01)
    (True, True, False)
    >>> round(trust.ridge, 2)
    0.32
    """

    ridge: float
    smallest: float
    _least: float = math.inf
    _doubt: float = 0.0

    def judge(self, energy: float, deviation: float) -> bool:
        """Change the ridge by the next energy, known up to noise of this deviation; say if it may be the least so far.

        The least energy is that with the lowest upper end: a noisy first one that is small by luck must not hide that
        later ones grow.
        """
        own = _CLEARLY * deviation
        least, doubt = self._least, self._doubt + own
        if energy > _FALL * max(least, 0.0) + doubt:
            self.ridge = self.smallest = min(3 * self.ridge + 0.02, 100.0)  # what went too far is not tried again
        if math.isfinite(least) and energy < least - doubt:
            self.ridge = max(self.ridge / 3, self.smallest)
        if energy + own < least + self._doubt:
            self._least, self._doubt = energy, own
        return energy < least + doubt


@dataclass(frozen=True, slots=True)
class GradientLearner:
    """What all gradients of a fit have in common. `curvatures` are those of the loss at `offset`, one an output."""

    rows: Rows
    columns: Columns
    plan: AdditivePlan
    residuals: Residuals
    curvatures: Array
    offset: Array
    noise: NoiseSource

    def learn(
        self,
        state: AdditiveState,
        basis: CurveBasis,
        moments: Array,
        plan: GradientsPlan,
        mu: float,
        first_guess: float,
    ) -> None:
        """Take the planned gradients; after each, move to the posterior mean given all of them."""
        n, kappa = self.plan.n_records, self.plan.neighbouring.sensitivity_factor
        groups = basis.groups()
        curvature = float(self.curvatures.mean())
        sampling = (_UNEXPLAINED if self.plan.n_classes is None else curvature) / n
        steps, trust = len(plan.events), Trust(state.ridge, _LEAST_RIDGE * state.ridge)
        for k in range(steps):
            if k < 5 or k % 4 == 0:
                variances = state.variances.mean(axis=0)
                frame = precondition(
                    moments, state.ridge, np.maximum(variances, 1e-9)[groups[0]],
                    noise_unit=kappa * self.plan.clip / (n * mu), sampling=sampling, curvature=curvature,
                )  # fmt: skip
            gradient, std = release_gradient(
                self.rows, self.columns, basis.features, self.residuals, state.parameters, frame.inverse_root, plan, k,
                clip_norm=self.plan.clip * math.sqrt(frame.effective_dimension), noise=self.noise,
            )  # fmt: skip
            if self.plan.outputs > 1:
                # Residuals of a record's classes add up to 0, clipped or not: what the sum over classes shows is noise,
                # which no later gradient would answer, because scores that all move alike change no probability.
                gradient = gradient - gradient.mean(axis=1, keepdims=True)
                std *= math.sqrt(1 - 1 / self.plan.outputs)
            energy = float(np.square(gradient).sum()) - gradient.size * std**2
            best = trust.judge(energy, math.sqrt(2 * gradient.size) * std**2)
            state.ridge = trust.ridge
            if not state.parameters.any():
                state.first = frame.root @ gradient
            kept = _kept_share(state.parameters, state.first, gradient, std, frame.root)
            state.gain = self._gain(kept * state.parameters, state.parameters, moments, frame.root @ gradient)
            state.history.add(gradient, std, frame, state.parameters, best=best)
            for output in range(self.plan.outputs):
                found = state.history.posterior(
                    output, moments, state.ridge, state.variances[output], groups,
                    curvature=self.curvatures[output], sampling=self.sampling(output) / self.curvatures[output],
                    rounds=3 if k < steps - 1 else 8,
                )  # fmt: skip
                state.parameters = state.parameters.copy()
                state.parameters[:, output] = found.mean
                if k >= 2:
                    state.variances[output] = np.maximum(found.variances, _KEPT * first_guess)
        state.parameters = kept * state.parameters
        state.frame = frame

    def _gain(self, position: Array, taken_at: Array, moments: Array, gradient: Array) -> float:
        """2θᵀb − θᵀHθ: what scores at θ take off the mean squared error, by a gradient b − Hθ' that θ does not know."""
        slope = gradient + self.curvatures * (moments @ taken_at)
        bend = self.curvatures * (moments @ position)
        return float(np.einsum("ik,ik->", position, 2 * slope - bend))

    def sampling(self, output: int) -> float:
        """Variance of a gradient by sampling, per unit of second moments."""
        return float((_UNEXPLAINED if self.plan.n_classes is None else self.curvatures[output]) / self.plan.n_records)

    def covariances(self, state: AdditiveState, basis: CurveBasis, moments: Array) -> list[Array]:
        """How far noise moves the coefficients of each output where the fit ended."""
        assert state.frame is not None, "no gradients yet"
        responses = [(moments, _UNEXPLAINED * moments)]
        if self.plan.n_classes is not None:
            responses = class_responses(
                basis, state.parameters, self.offset, moments, inverse_root=state.frame.inverse_root,
                clip_norm=self.plan.clip * math.sqrt(state.frame.effective_dimension),
            )  # fmt: skip
        group, _ = basis.groups()
        beside = np.full(basis.width, _BESIDE)
        if basis.pairs.chosen:
            beside[: basis.n_main] = _BESIDE_PAIRS
        return [
            state.history.covariance(
                slope, square / self.plan.n_records, state.variances[output][group], beside,
                output=output, curvature=float(self.curvatures[output]),
            )
            for output, (slope, square) in enumerate(responses)
        ]  # fmt: skip


def _kept_share(position: Array, first: Array, last: Array, std: float, root: Array) -> float:
    """Where on the ray from 0 through the last position the loss is least, at most 1: the floor under wild fits.

    The `last` gradient along that ray is noise where a fit ended well. Clearly negative, it says that the fit went too
    far; with the `first` gradient, that at 0, it gives the minimum of the parabola between them, whatever the second
    moments were taken to be. 0 is the mean of the target, or the prior of the classes.
    """
    start, end = (float(np.einsum("ik,ik->", gradient, position)) for gradient in (first, root @ last))
    noise = std * float(np.linalg.norm(root.T @ position))
    return 1.0 if end >= -4 * noise else max(start, 0.0) / max(max(start, 0.0) - end, 1e-300)


def _ridge(unknown: float) -> float:
    """What keeps steps stable where the second moments are not known: a share of their error."""
    return _RIDGE * unknown + 1e-4
