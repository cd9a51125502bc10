"""Coefficients with standard errors, in statsmodels' words: params, bse, conf_int, cov_params, summary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from gratis.recipes.linear_inference import ReleasedInference
from gratis.records.errors import GratisError

__all__ = ["CoefficientInference"]

Array = NDArray[np.float64]

_HEADINGS = ("coef", "std err", "z", "P>|z|")
_FORMATS = ("text", "markdown", "latex")


@dataclass(frozen=True, slots=True)
class CoefficientInference:
    """What a fit with inference=True says of its coefficients, the intercept ("const") first; all of it is released.

    Standard errors hold sampling and privacy noise, robust to heteroscedasticity. Where they could not be trusted they
    are `withheld`: the sentence says why and what would help, and asking for them is an error that repeats it.
    """

    found: ReleasedInference
    names: tuple[str, ...]
    budget: str

    @property
    def withheld(self) -> str | None:
        """Why there are no intervals, or None."""
        return self.found.withheld

    @property
    def params(self) -> Array:
        """Estimates in the original units."""
        return self._given(self.found.estimates)

    @property
    def bse(self) -> Array:
        """Standard errors of `params`."""
        return np.asarray(np.sqrt(np.diag(self.cov_params())))

    @property
    def zvalues(self) -> Array:
        """`params` over `bse`."""
        return np.asarray(self.params / self.bse)

    @property
    def pvalues(self) -> Array:
        """Two-sided, of the hypothesis that a coefficient is 0."""
        return np.asarray(2 * ndtr(-np.abs(self.zvalues)))

    @property
    def privacy_share(self) -> Array:
        """The share of each coefficient's variance that is the noise of privacy."""
        return np.asarray(np.diag(self._given(self.found.privacy)) / np.diag(self.cov_params()))

    def cov_params(self) -> Array:
        """Covariance of `params`."""
        return self._given(self.found.covariance)

    def conf_int(self, level: float = 0.95) -> Array:
        """Intervals (d+1, 2) that hold each coefficient with probability `level`, over rows and noise."""
        if not 0 < level < 1:
            raise GratisError(f"level must lie between 0 and 1, got {level}")
        reach = ndtri((1 + level) / 2) * self.bse
        return np.column_stack([self.params - reach, self.params + reach])

    def summary(self, level: float = 0.95, output: str = "text") -> str:
        """A table: text for a terminal, "markdown" or "latex". Says why, where intervals are withheld."""
        if output not in _FORMATS:
            raise GratisError(f"output must be one of {', '.join(map(repr, _FORMATS))}, got {output!r}")
        if self.withheld is not None:
            return f"{self.withheld[0].upper()}{self.withheld[1:]}."
        low, high = f"[{(1 - level) / 2:.3g}", f"{(1 + level) / 2:.3g}]"
        head = ["", *_HEADINGS, low, high, "privacy's share"]
        columns = (self.params, self.bse, self.zvalues, self.pvalues, *self.conf_int(level).T, self.privacy_share)
        spelt = ("{:.4g}", "{:.3g}", "{:.2f}", "{:.3f}", "{:.4g}", "{:.4g}", "{:.2f}")
        lines = [
            [name, *(form.format(value) for form, value in zip(spelt, values, strict=True))]
            for name, *values in zip(self.names, *columns, strict=True)
        ]
        if output == "latex":
            return _latex([head, *lines])
        if output == "markdown":
            table = [head, ["---", *["---:"] * (len(head) - 1)], *lines]
            return "\n".join(f"| {' | '.join(_escaped(cell, '|') for cell in line)} |" for line in table)
        said = (
            f"Linear regression, {self.found.rows} rows, {self.budget}\n"
            "Standard errors: sampling and privacy, robust to heteroscedasticity\n"
        )
        return said + _text([head, *lines])

    def _given(self, values: Array | None) -> Array:
        if values is None:
            raise GratisError(self.withheld or "there are no intervals")
        return values

    def __str__(self) -> str:
        return self.summary()


def _text(lines: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    made = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
    return "\n".join([rule, made[0], rule, *made[1:], rule])


def _latex(lines: list[list[str]]) -> str:
    rows = [" & ".join(_escaped(cell, "&%_#$|") for cell in line) + r" \\" for line in lines]
    return "\n".join(
        [rf"\begin{{tabular}}{{l{'r' * (len(lines[0]) - 1)}}}", r"\hline", rows[0], r"\hline", *rows[1:], r"\hline",
         r"\end{tabular}"]
    )  # fmt: skip


def _escaped(text: str, special: str) -> str:
    for sign in special:
        text = text.replace(sign, f"\\{sign}")
    return text
