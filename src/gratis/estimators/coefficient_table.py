"""A table of coefficients as cells of text, for terminals, notebooks, papers and pages."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from gratis.records.errors import GratisError

__all__ = ["FORMATS", "CoefficientTable", "coefficient_table"]

FORMATS = ("text", "markdown", "latex", "html")


@dataclass(frozen=True, slots=True)
class CoefficientTable:
    """Title, sentences, heading and lines; or, `withheld`, a sentence that says why there are none. All of it released.

    >>> table = CoefficientTable("Fit", ("robust",), ("", "coef"), (("age_1", "0.5"),))
    >>> print(table.spelt("markdown"))
    |  | coef |
    | --- | ---: |
    | age_1 | 0.5 |
    """

    title: str
    notes: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    withheld: str | None = None

    def spelt(self, output: str = "text") -> str:
        """The table as "text", "markdown", "latex" or "html"."""
        if output not in FORMATS:
            raise GratisError(f"output must be one of {', '.join(map(repr, FORMATS))}, got {output!r}")
        if self.withheld is not None:
            sentence = f"{self.withheld[0].upper()}{self.withheld[1:]}."
            return f"<p>{escape(sentence)}</p>" if output == "html" else sentence
        return {"text": self._text, "markdown": self._markdown, "latex": self._latex, "html": self._html}[output]()

    def _text(self) -> str:
        lines = [self.headings, *self.lines]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headings))]
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        made = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
        return "\n".join([self.title, *self.notes, rule, made[0], rule, *made[1:], rule])

    def _markdown(self) -> str:
        table = [self.headings, ("---", *["---:"] * (len(self.headings) - 1)), *self.lines]
        return "\n".join(f"| {' | '.join(_escaped(cell, '|') for cell in line)} |" for line in table)

    def _latex(self) -> str:
        rows = [" & ".join(_tex(cell) for cell in line) + r" \\" for line in (self.headings, *self.lines)]
        return "\n".join(
            [rf"\begin{{tabular}}{{l{'r' * (len(self.headings) - 1)}}}", r"\hline", rows[0], r"\hline", *rows[1:],
             r"\hline", r"\end{tabular}"]
        )  # fmt: skip

    def _html(self) -> str:
        head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in self.headings)
        body = "\n".join(
            f'<tr><th scope="row">{escape(line[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in line[1:])
            + "</tr>"
            for line in self.lines
        )  # fmt: skip
        caption = "<br>".join(escape(sentence) for sentence in (self.title, *self.notes))
        return (
            f'<table class="coefficients">\n<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody>\n</table>"
        )


def coefficient_table(model: Any, level: float = 0.95) -> CoefficientTable | None:
    """Return what a fitted model says of its coefficients, None if it is no linear or logistic regression.

    With inference=True estimates with intervals, or why they are withheld; for a staged linear fit without it, `coef_`
    and how far privacy noise moves it. Stable: reports show it.
    """
    if hasattr(model, "inference_"):
        table: CoefficientTable = model.inference_.table(level)
        return table
    covariance = getattr(model, "noise_covariance_", None)
    if covariance is None:
        return None
    deviations = np.sqrt(np.diag(covariance))
    values = np.concatenate([np.ravel(model.intercept_), np.ravel(model.coef_)])
    named = getattr(model, "feature_names_in_", None)
    names = ["const", *(map(str, named) if named is not None else (f"x{i + 1}" for i in range(len(values) - 1)))]
    return CoefficientTable(
        title=f"Linear regression, {model._budget().describe()}",
        notes=("Deviation by the noise of privacy alone; fit with inference=True for standard errors",),
        headings=("", "coef", "privacy noise"),
        lines=tuple(
            (name, f"{value:.4g}", f"{deviation:.3g}")
            for name, value, deviation in zip(names, values, deviations, strict=True)
        ),
    )


def _escaped(text: str, special: str) -> str:
    for sign in special:
        text = text.replace(sign, f"\\{sign}")
    return text


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$",
        "|": "$|$"}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, f"\\{sign}" if sign in "&%_#${}" else sign) for sign in text)
