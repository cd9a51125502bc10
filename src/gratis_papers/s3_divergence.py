"""S3, Figure 1: KL of the worst neighbour against steps, and what the paper says of epochs under three readings.

S3 counts epochs and names no batch size. Noisy descent here takes all records in every step, so steps are the axis,
and a claim about epochs is checked with 1, 10 and 100 steps an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gratis.planning.bounds.initialization import Scheme
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s3_initialization import COLOURS
from gratis_papers.s3_runs import NOISE_STD, Row, load_records, mean_rows, noisy_run
from gratis_papers.sweeps import sweep

__all__ = [
    "Size",
    "Verdict",
    "an_epoch",
    "claims_of",
    "curve",
    "curves",
    "describe",
    "divergence_against_steps",
    "notes",
    "select",
    "statements",
]

READINGS = (1, 10, 100)  # steps an epoch
STEP_SIZES = (0.01, 0.001)  # S3's text and the caption of its Figure 1
_LOW = (Scheme.LECUN, Scheme.XAVIER)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a figure's runs are."""

    source: str
    records: int
    width: int
    depth: int
    last: int
    runs: int


# About half an hour of one core; the paper has 10,000 + 2,000 records, width 1024, 6 runs.
# Larger numbers here are all that a larger run needs: finished runs of the same size are found again.
FULL = Size("cifar", 150, 128, 10, 5000, 6)
_LAST = {0.01: 5000, 0.001: 500}  # steps at each step size; at .001 a hundred steps an epoch were not affordable
LARGER = Size("cifar", 500, 256, 10, 100, 1)  # the same curves, LeCun and He, as far as was affordable
SMOKE = Size("digits", 40, 16, 2, 500, 2)


def curves(size: Size, settings: Sequence[Mapping[str, Any]], seed: int) -> list[Row]:
    """Return the rows of every setting (scheme, step size; width, depth, last, runs where they differ from `size`)."""
    plain: list[dict[str, Any]] = [
        {
            "source": size.source,
            "records": size.records,
            "width": size.width,
            "depth": size.depth,
            "last": size.last,
            "runs": size.runs,
        }
        | dict(setting)
        for setting in settings
    ]
    most = max(setting["runs"] for setting in plain)
    # Runs outermost: an interrupted sweep has some of everything.
    tasks = [(place, {**setting, "run": run}) for run in range(most) for place, setting in enumerate(plain)]
    tasks = [(place, task) for place, task in tasks if task["run"] < task.pop("runs")]
    found = sweep(noisy_run, [task for _, task in tasks], seed=seed)
    rows = []
    for place, setting in enumerate(plain):
        runs = [result for (owner, _), result in zip(tasks, found, strict=True) if owner == place]
        kept = {key: setting[key] for key in ("records", "scheme", "width", "depth", "step_size")}
        ended = sorted(result["diverged_at"] for result in runs if result["diverged_at"])
        rows += mean_rows(kept | {"diverged_at": ended[0] if ended else 0}, runs)
    return rows


def divergence_against_steps(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 1: KL of the worst neighbour after 1 to 5000 steps, at both step sizes that the paper names."""
    smoke, seed = scale == "smoke", int(rng.integers(2**31))
    size = SMOKE if smoke else FULL
    readings = [reading for reading in READINGS if 50 * reading <= size.last]
    ends = {step: min(size.last, last) for step, last in _LAST.items()}
    lines = [{"scheme": str(s), "step_size": step, "last": ends[step]} for step in STEP_SIZES for s in Scheme]
    rows = curves(size, lines, seed)
    larger = [] if smoke else curves(LARGER, [{"scheme": s, "step_size": 0.01} for s in ("lecun", "he")], seed)
    verdicts = [verdict for step in STEP_SIZES for reading in readings for verdict in statements(rows, step, reading)]
    name = load_records(size.source, size.records)[1]
    settings = describe(size, name) | {
        "steps": {str(step): last for step, last in ends.items()},
        "steps_an_epoch": readings,
        "larger": describe(LARGER, name) if larger else None,
    }
    return PaperResult(
        settings,
        rows + larger,
        [*claims_of(verdicts), *_ends(rows, ends)],
        lambda figure: _draw(figure, rows, larger, verdicts, readings),
        (*notes(size), *_where(verdicts, readings)),
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """One statement under one reading: the number that decides it for every initialization that trained so far."""

    statement: str
    step_size: float
    reading: int
    values: dict[str, float]

    def holds(self, scheme: str) -> bool:
        """Whether it is true of one initialization."""
        value = self.values[scheme]
        if self.statement == "linear":
            return 0.5 < value < 2
        return value > (1 if self.statement == "faster" else 10)

    def worst(self) -> float:
        """The value that is farthest from being true, or nearest to being false."""
        if self.statement == "linear":
            return max(self.values.values(), key=lambda value: abs(math.log(value)))
        return min(self.values.values())


_STATEMENTS = {
    "linear": (
        "KL grows linearly up to epoch 10 (KL(10)/(10·KL(1)) between ½ and 2; farthest from 1)",
        "The growth rate is close to linear at beginning of training (epochs < 10)",
    ),
    "faster": (
        "KL grows faster than linearly from epoch 10 to 50 (KL(50)/(5·KL(10)) above 1; least)",
        "and is faster than linear at epochs ≥ 10",
    ),
    "near zero": (
        "LeCun and Xavier at least 10 times below He and NTK at epoch 10 (least ratio)",
        "the KL privacy loss under LeCun and Xavier initialization is close to zero at the beginning of training "
        "(< 10 epochs)",
    ),
}


def statements(rows: list[Row], step_size: float, reading: int) -> list[Verdict]:
    """Return what rows at this step size say of the paper's statements, with so many steps an epoch."""
    kl = {str(s): {r["step"]: r["kl"] for r in select(rows, step_size=step_size, scheme=str(s))} for s in Scheme}
    early = {s: v for s, v in kl.items() if 10 * reading in v}
    late = {s: v for s, v in kl.items() if 50 * reading in v}
    high = [v[10 * reading] for s, v in early.items() if s not in _LOW]
    found: dict[str, dict[str, float]] = {
        "linear": {s: v[10 * reading] / (10 * v[reading]) for s, v in early.items()},
        "faster": {s: v[50 * reading] / (5 * v[10 * reading]) for s, v in late.items()},
        "near zero": {s: min(high) / early[s][10 * reading] for s in _LOW if s in early and high},
    }
    return [Verdict(statement, step_size, reading, values) for statement, values in found.items() if values]


def claims_of(verdicts: list[Verdict]) -> list[Claim]:
    """Return one claim a statement and reading: it must hold for all initializations that got so far."""
    return [
        Claim(
            f"{an_epoch(v.reading)}, step {v.step_size}: {_STATEMENTS[v.statement][0]}",
            all(map(v.holds, v.values)),
            v.worst(),
            words=_STATEMENTS[v.statement][1],
        )
        for v in verdicts
    ]


def _ends(rows: list[Row], ends: Mapping[float, int]) -> list[Claim]:
    """Divergence is one fact a step size."""
    words = {
        0.01: "We run noisy gradient descent with constant step-size 0.01 for 50 epochs",
        0.001: "Numerically estimated KL privacy loss for noisy GD with constant step-size 0.001",
    }
    claims = []
    for step in STEP_SIZES:
        chosen = select(rows, step_size=step)
        reached = min(max((r["step"] for r in chosen if r["scheme"] == s), default=0) for s in map(str, Scheme))
        text = f"step {step}: every initialization trains {ends[step]} steps (last mark that all runs of all reach)"
        claims.append(Claim(text, reached == ends[step], reached, words=words[step]))
    return claims


def _where(verdicts: list[Verdict], readings: Sequence[int]) -> list[str]:
    lines = []
    for step in STEP_SIZES:
        for statement in _STATEMENTS:
            found = {v.reading: v for v in verdicts if (v.step_size, v.statement) == (step, statement)}
            parts = []
            for scheme in sorted({s for v in found.values() for s in v.values}):
                held = [str(r) for r in readings if r in found and scheme in found[r].values and found[r].holds(scheme)]
                parts.append(f"{scheme} {', '.join(held) or 'never'}")
            tried = ", ".join(map(str, found))
            lines.append(f"step {step}, {statement}: of {tried} steps an epoch it holds with: {'; '.join(parts)}")
    return lines


def _draw(figure: Any, rows: list[Row], larger: list[Row], verdicts: list[Verdict], readings: Sequence[int]) -> None:
    figure.set_size_inches(10.5, 8)
    (left, right), (table, check) = figure.subplots(2, 2)
    for axes, step in ((left, 0.01), (right, 0.001)):
        for scheme in Scheme:
            chosen = select(rows, step_size=step, scheme=str(scheme))
            curve(axes, chosen, COLOURS[scheme], str(scheme))
            if chosen and chosen[0]["diverged_at"]:
                end = chosen[-1]
                axes.plot(end["step"], end["kl"], "x", ms=9, mew=2, color=COLOURS[scheme])
                axes.annotate(f"{scheme} diverges in step {end['diverged_at']}", (end["step"], end["kl"]), fontsize=8,
                              xytext=(8, 0), textcoords="offset points", va="center")  # fmt: skip
        mark_epochs(axes, readings)
        axes.set(xscale="log", yscale="log", xlabel="steps", title=f"step size {step}, {_runs(rows[0])}")
        axes.set_ylabel("KL of the worst neighbour")
    right.legend(frameon=False, fontsize=8, loc="lower right")
    _draw_verdicts(table, verdicts, readings)
    if not larger:
        check.axis("off")
        return
    for scheme in (Scheme.LECUN, Scheme.HE):
        small = select(rows, step_size=0.01, scheme=str(scheme))
        for chosen, style in ((small, "--"), (select(larger, scheme=str(scheme)), "o-")):
            n = chosen[0]["records"]
            x, y = [r["step"] for r in chosen], [r["kl"] * n**2 for r in chosen]
            label = f"{scheme}, n = {n}, width {chosen[0]['width']}"
            check.plot(x, y, style, ms=3, color=COLOURS[scheme], label=label)
    check.set(xscale="log", yscale="log", xlabel="steps", ylabel="n² · KL", title="larger network, more records")
    check.legend(frameon=False, fontsize=8)


def _runs(row: Row) -> str:
    return "one run" if row["runs"] == 1 else f"{row['runs']} runs (band: least to largest)"


def curve(axes: Any, chosen: list[Row], colour: str, label: str) -> None:
    """Draw KL against steps, with a band from the least to the largest run."""
    x = [row["step"] for row in chosen]
    axes.plot(x, [row["kl"] for row in chosen], "o-", ms=2.5, color=colour, label=label)
    axes.fill_between(x, *([row[key] for row in chosen] for key in ("least", "most")), color=colour, alpha=0.2, lw=0)


def an_epoch(reading: int) -> str:
    """A reading in words."""
    return f"{reading} step{'s' if reading > 1 else ''} an epoch"


def mark_epochs(axes: Any, readings: Sequence[int]) -> None:
    """Vertical lines at 20 and 50 epochs of each reading."""
    for reading, style in zip(readings, (":", "--", "-"), strict=False):
        for epochs in (20, 50):
            axes.axvline(epochs * reading, color="#8a93a6", lw=0.8, ls=style, zorder=0)
            axes.text(epochs * reading, 0.995, f"{epochs}×{reading}", rotation=90, fontsize=6.5, va="top", ha="right",
                      color="#5b6475", transform=axes.get_xaxis_transform())  # fmt: skip


def _draw_verdicts(axes: Any, verdicts: list[Verdict], readings: Sequence[int]) -> None:
    """Letters of the initializations: coloured and bold where the statement holds, grey where it does not."""
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(0, 1), title="which reading makes the paper's statements true")
    labels = {
        "linear": "linear to\nepoch 10",
        "faster": "faster from\n10 to 50",
        "near zero": "LeCun, Xavier\nnear zero",
    }
    columns = [(step, reading) for step in STEP_SIZES for reading in readings]
    place = {column: 0.22 + 0.78 * (i + 0.5) / len(columns) for i, column in enumerate(columns)}
    for (step, reading), x in place.items():
        axes.text(
            x, 0.92, f"step {step}\n{an_epoch(reading)}".replace(" an", "\nan"), ha="center", va="center", fontsize=7.5
        )
    for i, statement in enumerate(labels):
        y = 0.68 - 0.24 * i
        axes.axhline(y + 0.12, color="#d4d8e0", lw=0.8)
        axes.text(0, y, labels[statement], va="center", fontsize=8.5)
        for verdict in (v for v in verdicts if v.statement == statement):
            for scheme in verdict.values:
                row, column = divmod(list(Scheme).index(Scheme(scheme)), 2)
                x = place[verdict.step_size, verdict.reading] - 0.026 + 0.052 * column
                colour, weight = (COLOURS[scheme], "bold") if verdict.holds(scheme) else ("#c3c8d2", "normal")
                axes.text(x, y + 0.045 - 0.09 * row, scheme[0].upper(), ha="center", va="center", fontsize=10,
                          color=colour, weight=weight)  # fmt: skip
    words = "L LeCun, H He, X Xavier, N NTK: coloured where it holds,\ngrey where not, absent where runs did not reach"
    axes.text(0, 0.0, words, fontsize=7, color="#5b6475")


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """Return the rows with these entries."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def describe(size: Size, name: str) -> dict[str, Any]:
    """Settings of a size as plain data."""
    return {
        "data": name,
        "records": size.records,
        "addable_records": size.records // 5,
        "width": size.width,
        "depth": size.depth,
        "steps": size.last,
        "runs": size.runs,
        "noise_std": NOISE_STD,
        "estimate": "add/remove one record of a mean loss, worst neighbour of the mean over runs",
    }


def notes(size: Size) -> tuple[str, ...]:
    """What a reader of the figure must know."""
    return (
        f"{size.records} + {size.records // 5} records, width {size.width}, {size.runs} run(s); the paper has 10,000 + "
        "2,000, 1024 and 6. One step at the paper's size is about 7 s on one core (benchmarks/kl_estimation.py)",
        "every step takes all records; the paper names no batch size, so its epochs are read as 1, 10 and 100 steps",
        "records are given in an orthonormal basis of their span, which leaves the law of every run as it is; gradient "
        "differences are measured in every step up to 33, then in steps 3 % apart, linear in between",
        "KL is not (ε, δ)-DP; the estimate is computed from gradients without noise and is a diagnostic",
    )
