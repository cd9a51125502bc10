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
from gratis_papers.house_style import SCHEMES, SMALLEST
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


# The paper has 10,000 + 2,000 records, width 1024, 6 runs (one run of that size: `s3_own_size`). Larger numbers here
# are all that a larger run needs: finished runs of the same size are found again.
FULL = Size("cifar", 500, 256, 10, 500, 6)  # 20 minutes of one core
LONG = Size("cifar", 150, 128, 10, 5000, 6)  # a hundred steps an epoch, at step .01
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
    """Figure 1: KL of the worst neighbour against steps, at both step sizes that the paper names."""
    smoke, seed = scale == "smoke", int(rng.integers(2**31))
    size = SMOKE if smoke else FULL
    readings = [reading for reading in READINGS if 50 * reading <= size.last]
    lines = [{"scheme": str(s), "step_size": step} for step in STEP_SIZES for s in Scheme]
    rows = curves(size, lines, seed)
    long = [] if smoke else curves(LONG, [{"scheme": str(s), "step_size": 0.01} for s in Scheme], seed)
    name = load_records(size.source, size.records)[1]
    settings = describe(size, name) | {
        "step_sizes": list(STEP_SIZES),
        "steps_an_epoch": readings,
        "long": describe(LONG, name) | {"step_size": 0.01, "steps_an_epoch": READINGS[-1]} if long else None,
    }
    return PaperResult(
        settings,
        rows + long,
        judge_steps(settings, rows + long),
        lambda figure: draw_steps(figure, settings, rows + long),
        (*notes(size), *_where(_verdicts(settings, rows + long))),
    )


def _verdicts(settings: Row, rows: list[Row]) -> list[Verdict]:
    main = select(rows, records=settings["records"])
    found = [verdict for step in STEP_SIZES for reading in settings["steps_an_epoch"]
             for verdict in statements(main, step, reading)]  # fmt: skip
    if long := settings["long"]:
        found += statements(select(rows, records=long["records"]), 0.01, long["steps_an_epoch"])
    return found


def judge_steps(settings: Row, rows: list[Row]) -> list[Claim]:
    """The paper's statements under every reading, and that all train."""
    main = select(rows, records=settings["records"])
    return [*claims_of(_verdicts(settings, rows)), *_ends(main, settings["steps"])]


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


def _ends(rows: list[Row], last: int) -> list[Claim]:
    """Divergence is one fact a step size."""
    words = {
        0.01: "We run noisy gradient descent with constant step-size 0.01 for 50 epochs",
        0.001: "Numerically estimated KL privacy loss for noisy GD with constant step-size 0.001",
    }
    claims = []
    for step in STEP_SIZES:
        chosen = select(rows, step_size=step)
        reached = min(max((r["step"] for r in chosen if r["scheme"] == s), default=0) for s in map(str, Scheme))
        text = f"step {step}: every initialization trains {last} steps (last mark that all runs of all reach)"
        claims.append(Claim(text, reached == last, reached, words=words[step]))
    return claims


def _where(verdicts: list[Verdict]) -> list[str]:
    lines = []
    for step in STEP_SIZES:
        for statement in _STATEMENTS:
            found = {v.reading: v for v in verdicts if (v.step_size, v.statement) == (step, statement)}
            parts = []
            for scheme in sorted({s for v in found.values() for s in v.values}):
                held = [str(r) for r, v in found.items() if scheme in v.values and v.holds(scheme)]
                parts.append(f"{SCHEMES[scheme]} {', '.join(held) or 'never'}")
            tried = ", ".join(map(str, found))
            lines.append(f"step {step}, {statement}: of {tried} steps an epoch it holds with: {'; '.join(parts)}")
    return lines


def draw_steps(figure: Any, settings: Row, rows: list[Row]) -> None:
    """KL against steps at both step sizes, for the longest runs, and how it depends on the size."""
    sizes = [settings, *([settings["long"]] if settings["long"] else [])]
    figure.set_size_inches(11, 4.4 * len(sizes))
    panels = figure.subplots(len(sizes), 2).ravel()
    shown = [(settings, step, settings["steps_an_epoch"]) for step in STEP_SIZES]
    shown += [(size, 0.01, [size["steps_an_epoch"]]) for size in sizes[1:]]
    for axes, (size, step, readings) in zip(panels, shown, strict=False):
        for scheme in Scheme:
            chosen = select(rows, step_size=step, scheme=str(scheme), records=size["records"])
            curve(axes, chosen, COLOURS[scheme], SCHEMES[scheme])
            if chosen and chosen[0]["diverged_at"]:
                end = chosen[-1]
                axes.plot(end["step"], end["kl"], "x", ms=9, mew=2, color=COLOURS[scheme])
                axes.annotate(f"{SCHEMES[scheme]} diverges in step {end['diverged_at']}", (end["step"], end["kl"]),
                              size=SMALLEST, xytext=(8, 0), textcoords="offset points", va="center")  # fmt: skip
        mark_epochs(axes, readings)
        axes.set(xscale="log", yscale="log", xlabel="steps", ylabel="KL of the worst neighbour")
        of = f"{size['records']} + {size['addable_records']} records, width {size['width']}"
        axes.set_title(f"step size {step}, {of}, {_runs(size)}")
    panels[1].legend(loc="upper left")
    if len(sizes) == 1:
        return
    check = panels[3]
    for size, style in zip(sizes, ("o-", "--"), strict=True):
        for scheme in Scheme:
            chosen = select(rows, step_size=0.01, scheme=str(scheme), records=size["records"])
            x, y = [r["step"] for r in chosen], [r["kl"] * size["records"] ** 2 for r in chosen]
            label = f"n = {size['records']}, width {size['width']}" if scheme is Scheme.LECUN else None
            check.plot(x, y, style, ms=2.5, color=COLOURS[scheme], label=label)
    check.set(xscale="log", yscale="log", xlabel="steps", ylabel="n² · KL", title="both sizes, step size 0.01")
    check.legend(loc="lower right")


def _runs(size: Row) -> str:
    return "one run" if size["runs"] == 1 else f"{size['runs']} runs (band: all)"


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
            axes.text(epochs * reading, 0.03, f"{epochs}×{reading}", rotation=90, size=SMALLEST, va="bottom",
                      ha="right", color="#5b6475", transform=axes.get_xaxis_transform())  # fmt: skip


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
        "2,000, 1024 and 6. One step at the paper's size is about 16 s on one core (s3-size: 50 steps of it)",
        "every step takes all records; the paper names no batch size, so its epochs are read as 1, 10 and 100 steps",
        "records are given in an orthonormal basis of their span, which leaves the law of every run as it is; gradient "
        "differences are measured in every step up to 33, then in steps 3 % apart, linear in between",
        "KL is not (ε, δ)-DP; the estimate is computed from gradients without noise and is a diagnostic",
    )
