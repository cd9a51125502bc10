"""Coefficients with standard errors, in statsmodels' words: params, bse, conf_int, cov_params, t_test, summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc, ndtr, ndtri

from gratis.estimators.coefficient_table import CoefficientTable
from gratis.records.errors import GratisError
from gratis.stages.released_inference import ReleasedInference

__all__ = ["CoefficientInference", "Contrasts", "InferenceWords", "WaldTest"]

Array = NDArray[np.float64]
Restrictions = ArrayLike | str | Sequence[str] | Mapping[str, float]

_ESTIMANDS = {
    "weighted": "Estimand: weighted (rows far from the others count less)",
    "winsorised": "Estimand: winsorised (columns are pulled to their released windows)",
}
_HEADINGS = ("coef", "std err", "z", "P>|z|")


@dataclass(frozen=True, slots=True)
class _Estimates:
    """Numbers with a covariance, and what follows from the normal law."""

    names: tuple[str, ...]
    values: Array
    covariance: Array
    hypothesis: Array

    @property
    def errors(self) -> Array:
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @property
    def zvalues(self) -> Array:
        return np.asarray((self.values - self.hypothesis) / self.errors)

    @property
    def pvalues(self) -> Array:
        return np.asarray(2 * ndtr(-np.abs(self.zvalues)))

    def interval(self, level: float) -> Array:
        reach = normal_reach(level) * self.errors
        return np.column_stack([self.values - reach, self.values + reach])

    def lines(self, level: float) -> list[tuple[str, ...]]:
        columns = (self.values, self.errors, self.zvalues, self.pvalues, *self.interval(level).T)
        spelt = ("{:.4g}", "{:.3g}", "{:.2f}", "{:.3f}", "{:.4g}", "{:.4g}")
        return [
            (name, *(form.format(value) for form, value in zip(spelt, values, strict=True)))
            for name, *values in zip(self.names, *columns, strict=True)
        ]


def normal_reach(level: float) -> float:
    """Deviations to either side that hold a normal number with probability `level`."""
    if not 0 < level < 1:
        raise GratisError(f"level must lie between 0 and 1, got {level}")
    return float(ndtri((1 + level) / 2))


def _ends(level: float) -> tuple[str, str]:
    normal_reach(level)
    return f"[{(1 - level) / 2:.3g}", f"{(1 + level) / 2:.3g}]"


@dataclass(frozen=True, slots=True)
class Contrasts:
    """Combinations R·params, each with its own test: `effect`, `sd`, `zvalue`, `pvalue`, `conf_int`, `summary`."""

    found: _Estimates

    @property
    def effect(self) -> Array:
        """R·params."""
        return self.found.values

    @property
    def sd(self) -> Array:
        """Standard errors of `effect`."""
        return self.found.errors

    @property
    def zvalue(self) -> Array:
        """Distance from the hypothesis in standard errors."""
        return self.found.zvalues

    @property
    def pvalue(self) -> Array:
        """Two-sided."""
        return self.found.pvalues

    def conf_int(self, level: float = 0.95) -> Array:
        """Intervals (combinations, 2)."""
        return self.found.interval(level)

    def summary(self, level: float = 0.95, output: str = "text") -> str:
        """The table, as "text", "markdown", "latex" or "html"."""
        headings = ("", *_HEADINGS, *_ends(level))
        return CoefficientTable("Contrasts", (), headings, tuple(self.found.lines(level))).spelt(output)

    def __str__(self) -> str:
        return self.summary()


@dataclass(frozen=True, slots=True)
class WaldTest:
    """Are all of several combinations what the hypothesis says? `statistic` is chi-squared of `df` freedoms."""

    statistic: float
    df: int
    pvalue: float

    def __str__(self) -> str:
        return f"chi2({self.df}) = {self.statistic:.4g}, P = {self.pvalue:.4g}"


@dataclass(frozen=True, slots=True)
class CoefficientInference:
    """What a fit with inference=True says of its coefficients, the intercept ("const") first; all of it is released.

    Standard errors hold sampling and privacy noise, robust to heteroscedasticity. Where they could not be trusted they
    are `withheld`: the sentence says why and what would help, and asking for them is an error that repeats it. Where
    columns have names and pandas is installed, numbers come as pandas' series and frames, else as arrays.
    """

    found: ReleasedInference
    names: tuple[str, ...]
    budget: str
    kind: str = "Linear regression"
    estimand: str = "weighted"

    @property
    def withheld(self) -> str | None:
        """Why there are no intervals, or None."""
        return self.found.withheld

    @property
    def params(self) -> Any:
        """Estimates in the original units."""
        return self._named(self._estimates.values)

    @property
    def bse(self) -> Any:
        """Standard errors of `params`."""
        return self._named(self._estimates.errors)

    @property
    def zvalues(self) -> Any:
        """`params` over `bse`."""
        return self._named(self._estimates.zvalues)

    @property
    def pvalues(self) -> Any:
        """Two-sided, of the hypothesis that a coefficient is 0."""
        return self._named(self._estimates.pvalues)

    @property
    def privacy_share(self) -> Any:
        """The share of each coefficient's variance that is the noise of privacy."""
        return self._named(self._privacy_share)

    def cov_params(self) -> Any:
        """Covariance of `params`."""
        return self._named(self._estimates.covariance, self.names)

    def conf_int(self, level: float = 0.95) -> Any:
        """Intervals (d+1, 2) that hold each coefficient with probability `level`, over rows and noise."""
        return self._named(self._estimates.interval(level), ("low", "high"))

    def t_test(self, R: Restrictions, value: ArrayLike = 0.0) -> Contrasts:
        """Test combinations of coefficients one by one: R·params = value.

        R : a matrix (combinations, d+1) or one row of it, the name of a coefficient or several, or a mapping of names
            to weights: {"age": 1, "tenure": -1} asks whether the two are equal.
        """
        matrix, names = self._restrictions(R)
        own = self._estimates
        wanted = np.broadcast_to(np.asarray(value, dtype=np.float64), (len(matrix),))
        return Contrasts(_Estimates(names, matrix @ own.values, matrix @ own.covariance @ matrix.T, wanted))

    def wald_test(self, R: Restrictions | None = None, value: ArrayLike = 0.0) -> WaldTest:
        """Test combinations jointly, by default that all slopes are 0; R as for `t_test`."""
        both = self.t_test(list(self.names[1:]) if R is None else R, value).found
        gap = both.values - both.hypothesis
        if np.linalg.matrix_rank(both.covariance, hermitian=True) < len(gap):
            raise GratisError("the rows of R must not follow from each other")
        statistic = float(gap @ np.linalg.solve(both.covariance, gap))
        return WaldTest(statistic, len(gap), float(gammaincc(len(gap) / 2, statistic / 2)))

    def predict(self, X: Array, interval: str, level: float = 0.95) -> Array:
        """Return (n, 3): the linear predictor params·x, and the interval of its mean or of a new observation there.

        "observation" adds the released law of residuals, taken to be the same for all x and symmetric.
        """
        if interval not in ("mean", "observation"):
            raise GratisError(f"interval must be 'mean' or 'observation', got {interval!r}")
        own = self._estimates
        Z = np.column_stack([np.ones(len(X)), X])
        middle = Z @ own.values
        reach = normal_reach(level) * np.sqrt(np.einsum("ij,jk,ik->i", Z, own.covariance, Z, optimize=True))
        if interval == "observation":
            if self.found.errors is None:
                raise GratisError("intervals of observations are for regressions: ask for interval='mean'")
            sizes, shares = self.found.errors
            reach = np.hypot(reach, np.exp(np.interp(level, shares, np.log(sizes))))
        return np.column_stack([middle, middle - reach, middle + reach])

    def odds_ratios(self, level: float = 0.95) -> Any:
        """Return (d, 3) of two classes: by which factor one unit of a column multiplies the odds, and its interval."""
        self._classes()
        own = self._estimates
        found = np.exp(np.column_stack([own.values, own.interval(level)]))[1:]
        return self._named(found, ("odds ratio", "low", "high"), self.names[1:])

    def marginal_effects(self, level: float = 0.95, output: str | None = None) -> Any:
        """Return average marginal effects of two classes, (d, 4): effect on the probability, its error, its interval.

        β·E p(1−p) over the training rows, by the delta method; `output` gives the table instead ("text", …).
        """
        self._classes()
        own, steep = self._estimates, self.found.steepness
        assert steep is not None
        size = len(own.values)
        mean, by_estimates, variance = float(steep[0]), steep[1 : 1 + size], float(steep[-1])
        change = mean * np.eye(size) + np.outer(own.values, by_estimates)
        spread = change @ own.covariance @ change.T + variance * np.outer(own.values, own.values)
        effects = _Estimates(self.names[1:], mean * own.values[1:], spread[1:, 1:], np.zeros(size - 1))
        if output is not None:
            table = CoefficientTable(
                "Average marginal effects on the probability", (), ("", "dy/dx", *_HEADINGS[1:], *_ends(level)),
                tuple(effects.lines(level)),
            )  # fmt: skip
            return table.spelt(output)
        both = np.column_stack([effects.values, effects.errors, effects.interval(level)])
        return self._named(both, ("dy/dx", "std err", "low", "high"), self.names[1:])

    def table(self, level: float = 0.95) -> CoefficientTable:
        """The table of coefficients as cells; says why, where intervals are withheld."""
        title = f"{self.kind}, {self.found.rows} rows, {self.budget}"
        if self.withheld is not None:
            return CoefficientTable(title, withheld=self.withheld)
        headings = ["", *_HEADINGS, *_ends(level), "privacy's share"]
        more = [[f"{share:.2f}"] for share in self._privacy_share]
        if self.found.steepness is not None:
            headings.insert(-1, "odds ratio")
            more = [[f"{np.exp(v):.4g}", *cells] for v, cells in zip(self._estimates.values, more, strict=True)]
        lines = tuple((*line, *cells) for line, cells in zip(self._estimates.lines(level), more, strict=True))
        notes = ("Standard errors: sampling and privacy, robust to heteroscedasticity", _ESTIMANDS[self.estimand])
        return CoefficientTable(title, notes, tuple(headings), lines)

    def summary(self, level: float = 0.95, output: str = "text") -> str:
        """The table, as "text" for a terminal, "markdown", "latex" or "html"."""
        return self.table(level).spelt(output)

    def summary_frame(self, level: float = 0.95) -> Any:
        """The table as a pandas frame, one row a coefficient."""
        low, high = self._estimates.interval(level).T
        own = self._estimates
        parts = {
            "coef": own.values, "std err": own.errors, "z": own.zvalues, "p": own.pvalues, "low": low, "high": high,
            "privacy": self._privacy_share,
        }  # fmt: skip
        import pandas as pd

        return pd.DataFrame(parts, index=list(self.names))

    def renamed(self, names: Sequence[str]) -> CoefficientInference:
        """The same with other names of the columns."""
        if len(names) != len(self.names) - 1:
            raise GratisError(f"{len(self.names) - 1} names are needed, got {len(names)}")
        return replace(self, names=("const", *map(str, names)))

    @property
    def _estimates(self) -> _Estimates:
        values, covariance = self.found.estimates, self.found.covariance
        if values is None or covariance is None:
            raise GratisError(self.withheld or "there are no intervals")
        return _Estimates(self.names, values, covariance, np.zeros(len(values)))

    @property
    def _privacy_share(self) -> Array:
        whole = np.diag(self._estimates.covariance)
        assert self.found.privacy is not None
        return np.asarray(np.diag(self.found.privacy) / whole)

    def _classes(self) -> None:
        if self.found.steepness is None:
            raise GratisError(self.withheld or "odds and effects on a probability are those of a logistic regression")

    def _restrictions(self, R: Restrictions) -> tuple[Array, tuple[str, ...]]:
        size = len(self._estimates.values)
        if isinstance(R, str):
            R = [R]
        if isinstance(R, Mapping):
            row = np.zeros((1, size))
            for name, weight in R.items():
                row[0, self._place(name)] = weight
            terms = (f"{'−' if w < 0 else '+'} {'' if abs(w) == 1 else f'{abs(w):g}·'}{name}" for name, w in R.items())
            return row, (" ".join(terms).removeprefix("+ "),)
        if len(R) and all(isinstance(name, str) for name in R):  # type: ignore[arg-type,union-attr]
            names = tuple(map(str, R))  # type: ignore[arg-type]
            return np.eye(size)[[self._place(name) for name in names]], names
        matrix = np.atleast_2d(np.asarray(R, dtype=np.float64))
        if matrix.ndim != 2 or matrix.shape[1] != size or not np.isfinite(matrix).all():
            raise GratisError(f"R must have {size} columns, one a coefficient and the intercept first")
        return matrix, tuple(f"c{i}" for i in range(len(matrix)))

    def _place(self, name: Any) -> int:
        if name not in self.names:
            raise GratisError(
                f"there is no coefficient {str(name)!r}; combinations are asked for as {{'age': 1, 'tenure': -1}}"
            )
        return self.names.index(name)

    def _named(self, values: Array, columns: Sequence[str] | None = None, index: Sequence[str] | None = None) -> Any:
        """As pandas, where columns came with names and pandas is there."""
        anonymous = self.names[1:] == tuple(f"x{i + 1}" for i in range(len(self.names) - 1))
        if anonymous or find_spec("pandas") is None:
            return values
        import pandas as pd

        names = list(index or self.names)
        return pd.Series(values, names) if columns is None else pd.DataFrame(values, names, list(columns))

    def _repr_html_(self) -> str:
        return self.summary(output="html")

    def __str__(self) -> str:
        return self.summary()


class InferenceWords:
    """Mixin: what an estimator with inference=True offers beside `inference_`, which holds all of it."""

    inference: bool | str
    inference_: CoefficientInference
    _inference_kind: ClassVar[str] = "Linear regression"

    def _publish_inference(self, released: ReleasedInference, names: Sequence[str] | None = None) -> None:
        own: Any = self
        if names is None:
            names = getattr(self, "feature_names_in_", [f"x{i + 1}" for i in range(own.n_features_in_)])
        said = own._budget().describe()
        estimand = own._estimand() or "weighted"
        self.inference_ = CoefficientInference(
            released, ("const", *map(str, names)), said, self._inference_kind, estimand
        )  # fmt: skip

    def _inference(self) -> CoefficientInference:
        found: CoefficientInference | None = getattr(self, "inference_", None)
        if found is None:
            raise AttributeError("no intervals were paid for: fit with inference=True")
        return found

    @property
    def params(self) -> Any:
        """Estimates with intervals, the intercept first; see `inference_`."""
        return self._inference().params

    @property
    def bse(self) -> Any:
        """Standard errors of `params`: sampling and privacy together, robust to heteroscedasticity."""
        return self._inference().bse

    @property
    def pvalues(self) -> Any:
        """Two-sided, of the hypothesis that a coefficient is 0."""
        return self._inference().pvalues

    def conf_int(self, level: float = 0.95) -> Any:
        """Intervals of `params` (d+1, 2)."""
        return self._inference().conf_int(level)

    def cov_params(self) -> Any:
        """Covariance of `params`."""
        return self._inference().cov_params()

    def t_test(self, R: Restrictions, value: ArrayLike = 0.0) -> Contrasts:
        """Test combinations R·params = value one by one; R is a matrix, names, or a mapping of names to weights."""
        return self._inference().t_test(R, value)

    def wald_test(self, R: Restrictions | None = None, value: ArrayLike = 0.0) -> WaldTest:
        """Test combinations jointly; by default that all slopes are 0."""
        return self._inference().wald_test(R, value)

    def summary(self, level: float = 0.95, output: str = "text") -> str:
        """The table of coefficients, as "text", "markdown", "latex" or "html"; where withheld, the reason."""
        return self._inference().summary(level, output)
