"""Plan private training on random features from (n, d, p) and the budget alone (S0, Theorem 2)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.models.random_features import Activation
from gratis.numerics.significant import significant
from gratis.planning.bounds.early_stopping import EarlyStopping
from gratis.planning.twins.random_features_twin import (
    SignTwin,
    draw_sign_twin,
    feature_second_moment,
    planned_engine,
    shrunken,
)
from gratis.records.budget import Budget
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.progress import counted, tracked
from gratis.records.record import JsonObject
from gratis.records.settings import FeatureSettings
from gratis.stages.feature_descent import feature_descent_event

__all__ = ["plan_random_features", "reconstruction_words", "rough_feature_cost", "theorem_2_terms"]

Array = NDArray[np.float64]

# C in units of the feature norm √(p·Eφ²), and ηTp·Eφ²/min(d, n). S0's choices for tanh are .8 and about 2 (CT ≈ 5).
_CLIPS = np.geomspace(0.4, 3.2, 7)
# Down to .01, where a small budget still gains something over the trivial predictor; the long ones are tried where
# the longest of the others is the best, as it is for far more rows than inputs.
_TIMES = np.geomspace(0.01, 10.0, 24)
# Every second clip and every third time first, then all neighbours of the best: in 30 searches (n = 300 … 20,000, d = 5
# … 100, ε = .5 … 8) the loss found was at most 1.1 % above that of the whole grid (mean ratio 1.000), at a third of its
# work.
_COARSE = _CLIPS[::2], _TIMES[2::3]
_LONG_TIMES = np.geomspace(10.0, 300.0, 10)[1:]
_FEWEST_STEPS, _MOST_STEPS = 50, 10_000
_STABLE = 4 / 3  # T over time·min(d, n) with which 2ηλ_max/n = 1.5 if all rows lie along one direction; 2 is unstable
_MOST_WORK = 1e10  # features visited in training for the sake of a long path: about half a minute
_LARGEST_SIZE = 10**15
_TEST_RECORDS = 2000  # of one twin


def theorem_2_terms(n_records: int, n_inputs: int, *, epsilon: float | None) -> dict[str, float]:
    """Return the three terms of S0's Theorem 2 without constants and logarithms.

    |R_P| = Õ(d/(nε) + √(d/n) + √(n/d^{3/2})): privacy noise (left out if the budget is not stated as ε), early
    stopping, and the plateau's next staircase.

    >>> terms = theorem_2_terms(2000, 100, epsilon=4.0)
    >>> {name: round(value, 4) for name, value in terms.items()}
    {'noise': 0.0125, 'early_stopping': 0.2236, 'plateau': 1.4142}
    """
    n, d = float(n_records), float(n_inputs)
    noise = {} if epsilon is None else {"noise": d / (n * epsilon) if epsilon > 0 else math.inf}
    return {**noise, "early_stopping": math.sqrt(d / n), "plateau": math.sqrt(n / d**1.5)}


def reconstruction_words(n_records: int, n_inputs: int, n_features: int) -> str:
    """Say where p/(nd) lies against the threshold of reconstruction (docs/theory/trust.md, statement 3).

    In runs without privacy (s1-recon) the error of the attack is near chance up to p = nd/2 and near 0 from 5nd on.

    >>> reconstruction_words(100, 10, 50_000)
    'p/(n·d) = 50: without privacy the rows could be read off such a model (from 5 or so on); the noise prevents it.'
    """
    ratio = n_features / (n_records * n_inputs)
    if ratio < 0.5:
        return f"p/(n·d) = {ratio:.3g}: too few features for the known attack to read rows off, even without noise."
    place = "could" if ratio >= 5 else "could in part"
    return (
        f"p/(n·d) = {ratio:.3g}: without privacy the rows {place} be read off such a model (from 5 or so on); "
        "the noise prevents it."
    )


def plan_random_features(
    n_records: int,
    n_inputs: int,
    n_features: int,
    budget: Budget,
    *,
    activation: Any = "tanh",
    seed: int = 0,
    twins: int = 2,
    twin_records: int = 2000,
) -> Plan:
    """Choose clip norm, steps, learning rate and noise for f(x) = φ(Vx)ᵀθ with loss (f − y)².

    Twins of the same d/n, p/n and μ (`shrunken`) are trained at every (C, ηT) of a grid in S0's scale-free units,
    C/√(p·Eφ²) and ηTp·Eφ²/d (n for d > n); the pair with the least mean test loss is planned. No data is opened.
    Twins have independent inputs; the number of steps is planned for the other extreme too, where all rows lie along
    one direction and λ_max of K is n·p·Eφ²: more steps of a smaller rate cost no privacy.

    Parameters
    ----------
    n_records, n_inputs, n_features : n, d, p.
    budget : Budget
    activation : name or function of arrays
    seed : of the twins, the same for every budget: a plan can be made again, and budgets differ by their noise alone.
    twins : data sets to average over.
    twin_records : largest n of a twin.

    >>> plan = plan_random_features(300, 15, 2000, Budget(epsilon=4.0, delta=1 / 300), twins=1)
    >>> plan.settings.steps >= 50, plan.prediction.quantity
    (True, 'test_loss')
    """
    n, d = check_count("n_records", n_records), check_count("n_inputs", n_inputs)
    p, twins = check_count("n_features", n_features), check_count("twins", twins)
    if max(n, d, p) > _LARGEST_SIZE:
        raise GratisError(f"n, d and p must be at most {_LARGEST_SIZE:.0e}")
    phi = Activation.parse(activation)
    power = feature_second_moment(phi)
    mu = calibrate_mu(budget)
    small_n, small_d, small_p, denser = shrunken(n, d, p, check_count("twin_records", twin_records))
    with counted("planning", 4) as advance:  # drawing; coarse, fine and sometimes longer paths
        drawn = _draw_twins(small_n, small_d, small_p, phi, seed, twins)
        advance(1)
        search = _Search(drawn, power, budget.neighbouring.sensitivity_factor / (mu * denser), seed)
        search.extend(*_COARSE)
        advance(1)
        clip, time, _ = search.best()
        search.extend(*_neighbours(clip, time))
        advance(1)
        clip, time, _ = search.best()
        directions = min(d, n)  # of the training rows
        longer = _LONG_TIMES[_LONG_TIMES * _STABLE * directions * n * min(n, p) < _MOST_WORK]
        if time == _TIMES[-1] and len(longer):
            search.extend(_CLIPS[np.abs(np.log(_CLIPS / clip)) < 0.5], longer)
    clip, time, losses = search.best()

    # Near the flow for independent inputs (as twins have), stable for any.
    stable = min(math.ceil(_STABLE * time * directions), _MOST_STEPS)
    steps = max(stable, *(_steps(twin, time, power) for twin in drawn))
    clip_norm = float(significant(clip * math.sqrt(p * power)))
    learning_rate = float(significant(time * directions / (p * power * steps)))
    event = feature_descent_event(n, p, 1, steps, mu=mu, neighbouring=budget.neighbouring)
    engine = planned_engine(event, phi, d, p, clip_norm=clip_norm, learning_rate=learning_rate, mu=mu)
    nonprivate = float(np.mean([twin.interpolant_loss for twin in drawn]))
    value = float(losses.mean())
    stopped, unclipped = np.mean([search.without_clipping(twin, clip, time) for twin in drawn], axis=0)
    # Twins of other seeds differ by this much; two alone may agree by chance.
    spread = 2 * max(float(losses.std()), 0.6 * value / math.sqrt(small_n))
    regime = {
        "n_over_d": n / d,
        "n_over_d_to_three_halves": n / d**1.5,
        "p_over_n": p / n,
        "p_over_n_squared": p / n**2,
        "inside": bool(d < n < d**1.5 and p > n),
    }
    prediction = Prediction(
        quantity="test_loss",
        value=value,
        low=value - spread,
        high=value + spread,
        source=f"{twins} twins of n={small_n}, d={small_d}, p={small_p}, trained by the dual engine",
        assumptions=(
            "rows are N(0, I) and labels sign(uᵀx) without noise",
            "the best setting of a grid is reported at its own twins, which flatters it slightly",
            *(() if small_n == n else ("the loss depends on (d/n, p/n, μ) and not on n itself",)),
            *((f"twins have {denser:.0f} times fewer rows an input, and the same noise",) if denser > 1.5 else ()),
            *(("features are Gaussian given the rows, with their covariance",) if drawn[0].gaussian else ()),
        ),
        details={
            "predicted_nonprivate_loss": nonprivate,
            "gap": value - nonprivate,
            "predicted_nonprivate_stopped_loss": float(stopped),
            "unclipped_loss": float(unclipped),
            "theorem_2": theorem_2_terms(n, d, epsilon=budget.epsilon),
            "regime": regime,
        },
    )
    outside = "" if regime["inside"] else " Theorem 2 asks for d ≪ n ≪ d^{3/2} and p ≫ n, which these sizes miss."
    return Plan(
        algorithm="full-batch-descent-on-features",
        schedule="constant",
        settings=FeatureSettings(
            n_features=p,
            activation=phi.name,
            clip_norm=clip_norm,
            steps=steps,
            learning_rate=learning_rate,
            noise_std=float(significant(learning_rate * clip_norm * event.noise_stds.values[0])),
            engine=str(engine.engine),
        ),
        budget=budget,
        event=event,
        prediction=prediction,
        reasons=(
            f"C = {clip:.3g}·√(p·Eφ²), ηTp·Eφ²/{'d' if d <= n else 'n'} = {time:.3g}: "
            f"the least test loss of {len(search.settings)} settings.",
            f"Predicted test loss {value:.3f} against {nonprivate:.3f} of the non-private interpolant"
            f" and {stopped:.3f} of non-private early stopping.{outside}",
            *(("That is no better than predicting 0, whose loss is 1: this budget buys nothing here.",) * (value >= 1)),
            f"The {engine.engine} engine: {engine.reason}."
            + (" Rows that are not in memory take the primal one, with the same event." * (engine.engine == "dual")),
        ),
        alternatives=search.alternatives(),
    )


@lru_cache(maxsize=1)
def _draw_twins(n: int, d: int, p: int, activation: Activation, seed: int, count: int) -> list[SignTwin]:
    """Draw the twins, which are the same for every budget."""
    rng = np.random.default_rng(seed)
    return [draw_sign_twin(n, d, p, activation, rng=rng, n_test=_TEST_RECORDS) for _ in tracked(range(count), "twins")]


def _neighbours(clip: float, time: float) -> tuple[Array, Array]:
    """Return what lies between a point of the coarse grid and the next ones."""
    near_clips = np.abs(np.log(_CLIPS / clip)) < 1.5 * math.log(_CLIPS[1] / _CLIPS[0])
    near_times = np.abs(np.log(_TIMES / time)) < 2.5 * math.log(_TIMES[1] / _TIMES[0])
    return _CLIPS[near_clips], _TIMES[near_times]


class _Search:
    """Test losses of twins at settings (C in √(p·Eφ²), ηTp·Eφ²/d), added grid by grid."""

    def __init__(self, twins: list[SignTwin], power: float, noise: float, seed: int) -> None:
        self._twins, self._power, self._noise, self._seed = twins, power, noise, seed
        self.settings: list[tuple[float, float]] = []
        self._losses = np.empty((len(twins), 0))

    def extend(self, clips: Array, times: Array) -> None:
        """Train every twin at every pair."""
        clip, time = (grid.ravel() for grid in np.meshgrid(clips, times, indexing="ij"))
        # Two draws: one chose, for ε = 0, a setting whose loss under fresh noise was 1.04 (1 is that of predicting 0).
        found = np.array([self._train(twin, clip, time) for twin in tracked(self._twins, "twins")])
        self.settings += zip(clip.tolist(), time.tolist(), strict=True)
        self._losses = np.hstack([self._losses, found])

    def best(self) -> tuple[float, float, Array]:
        """Return the setting with the least mean loss, and the loss of each twin there."""
        index = int(np.argmin(self._losses.mean(axis=0)))
        return *self.settings[index], self._losses[:, index]

    def alternatives(self) -> tuple[JsonObject, ...]:
        """Return the next best three."""
        means = self._losses.mean(axis=0)
        return tuple(
            {"clip": self.settings[i][0], "time": self.settings[i][1], "test_loss": float(means[i])}
            for i in np.argsort(means)[1:4]
        )

    def without_clipping(self, twin: SignTwin, clip: float, time: float) -> tuple[float, float]:
        """Closed form: the least loss of early stopping without noise, and the loss of a setting with it."""
        closed = twin.closed_form
        times = np.concatenate([_TIMES, _LONG_TIMES])
        stopped = closed.predict_flow(_flow(twin, times, self._power), total_noise_variances=0.0).total.min()
        noise = self._total_noise(twin, clip, time)
        noisy = closed.predict_flow(_flow(twin, time, self._power), total_noise_variances=noise**2).total
        return float(stopped), float(noisy)

    def _train(self, twin: SignTwin, clips: Array, times: Array) -> Array:
        # Half as many as are planned: over 50 searches (n = 300 … 100,000, d = 5 … 100, ε = .3 … 4) the settings found
        # had, under fresh noise and all steps, .997 of the mean loss (.91 to 1.02).
        steps = max(_FEWEST_STEPS, math.ceil(_steps(twin, float(times.max()), self._power) / 2))
        return twin.losses(
            steps=steps,
            learning_rates=_flow(twin, times, self._power) / steps,
            clip_norms=clips * math.sqrt(twin.n_features * self._power),
            noise_stds=self._total_noise(twin, clips, times) / math.sqrt(steps),
            n_seeds=2,
            rng=np.random.default_rng([self._seed, 1]),
        ).mean(axis=1)

    def _total_noise(self, twin: SignTwin, clips: Any, times: Any) -> Any:
        """Return √T·s = κ·ηT·C/(nμ)."""
        clip_norms = clips * math.sqrt(twin.n_features * self._power)
        return self._noise * _flow(twin, times, self._power) * clip_norms / len(twin.y)


def _flow(twin: SignTwin, times: Any, power: float) -> Any:
    """ηT."""
    return times * min(twin.n_inputs, len(twin.y)) / (twin.n_features * power)


def _steps(twin: SignTwin, time: float, power: float) -> int:
    """Return T with 2ηλ_max/n ≤ ¼: near the flow, far from instability."""
    wanted = math.ceil(8 * _flow(twin, time, power) * twin.largest_eigenvalue / len(twin.y))
    return int(np.clip(wanted, _FEWEST_STEPS, _MOST_STEPS))


_ROUGH_RECORDS, _ROUGH_TEST_RECORDS = 400, 1000
_ROUGH_TIMES = np.geomspace(0.01, 300.0, 40)
_ROUGH_CLIP = 1.0  # in units of the feature norm √(p·Eφ²): typical of what plans choose
_ROUGH_FACTOR = 3.0  # either way


def rough_feature_cost(
    n_records: int, n_inputs: int, n_features: int, budget: Budget, *, activation: Any = "tanh", seed: int = 0
) -> tuple[float, float, float]:
    """Loss to privacy (value, low, high) of early stopping with the noise of the budget, as if nothing were clipped.

    One twin of 400 rows and the gradient flow's closed form instead of simulated descents: .02 to .15 s instead of .3
    to 4. It leaves out the bias of clipping and so tends to be too low: of ten sizes (n = 1000 … 10⁶, d = 5 … 200, ε =
    .2 … 3) the plan's own figure was .7 to 2.4 times as large in nine, and the tenth was below .002. Twins of those
    sizes also differ among each other by as much. The range is a factor of 3 either way.

    >>> value, low, high = rough_feature_cost(5000, 10, 2000, Budget(epsilon=1.0, delta=1e-6))
    >>> 0 <= low <= value <= high < 1
    True
    """
    phi = Activation.parse(activation)
    power, mu = feature_second_moment(phi), calibrate_mu(budget)
    n, d, p, denser = shrunken(n_records, n_inputs, n_features, _ROUGH_RECORDS)
    closed, interpolant = _closed_form(n, d, p, phi, seed)
    flow = _ROUGH_TIMES * min(d, n) / (p * power)
    # √T·s = κ·ηT·C/(nμ).
    noise = budget.neighbouring.sensitivity_factor / (mu * denser) * flow * _ROUGH_CLIP * math.sqrt(p * power) / n
    stopped = float(closed.predict_flow(flow, total_noise_variances=0.0).total.min())
    private = float(closed.predict_flow(flow, total_noise_variances=noise**2).total.min())
    value = max(0.0, private - min(stopped, interpolant))
    return value, value / _ROUGH_FACTOR, value * _ROUGH_FACTOR


@lru_cache(maxsize=4)
def _closed_form(n: int, d: int, p: int, activation: Activation, seed: int) -> tuple[EarlyStopping, float]:
    """A twin's losses in closed form, the same for every budget, and the loss of its interpolant."""
    twin = draw_sign_twin(n, d, p, activation, rng=np.random.default_rng(seed), n_test=_ROUGH_TEST_RECORDS)
    return twin.closed_form, float(twin.interpolant_loss)
