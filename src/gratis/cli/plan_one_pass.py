"""Parts of `gratis plan one-pass`: the user's own schedule, predicted curves, and classification."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gratis.cli.output import emit, table
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    from gratis.planning.assumptions import LinearFacts
    from gratis.planning.one_pass.schedules import Schedule
    from gratis.records.plans import Plan

__all__ = ["emit_classification", "given_schedule", "write_curves"]


def given_schedule(family: str, rate: float | None, clip: float | None, offset: float | None) -> Schedule | None:
    """Return the schedule whose rate and clip level the user states; None where nothing is stated."""
    from gratis.planning.one_pass.schedule_optimisation import Family, FamilyKind
    from gratis.planning.one_pass.schedules import Harmonic, Polynomial
    from gratis.records.checks import check_positive

    if rate is None and clip is None and offset is None:
        return None
    if rate is None or clip is None:
        raise GratisError("your own schedule needs both --rate and --clip")
    rate = check_positive("rate", rate)
    kind = None if family == "best" else Family.parse(family)
    if kind is not None and kind.kind is FamilyKind.POLYNOMIAL and offset is None:
        return Polynomial(kind.alpha, rate, clip)
    if kind is not None and kind.kind is FamilyKind.HARMONIC and offset is not None:
        offset = check_positive("offset", offset)
        return Harmonic(rate * offset, offset, clip)
    raise GratisError("--rate and --clip go with --schedule poly:ALPHA, or with --schedule harmonic and --offset")


def write_curves(path: Path, facts: LinearFacts, plan: Plan) -> None:
    """Write the predicted excess risk of a regression's pass along time, one column for each problem."""
    from gratis.planning.one_pass.prediction import predict_one_pass
    from gratis.planning.one_pass_limits import schedule_of

    found = [predict_one_pass(problem, schedule_of(plan), tolerance=1e-5) for problem in facts.problems()]
    _write(path, [(one.times.tolist(), [*one.excess_risk.tolist(), one.final_excess_risk]) for one in found])


def _write(path: Path, curves: list[tuple[list[float], list[float]]]) -> None:
    """The last row is the release: t = 1 with the last noise."""
    times = [*curves[0][0], 1.0]
    lines = ["t," + ",".join(f"problem {k + 1}" for k in range(len(curves)))]
    lines += [
        ",".join([f"{time:.9g}", *(f"{values[place]:.9g}" for _, values in curves)]) for place, time in enumerate(times)
    ]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise GratisError(f"cannot write {path} ({error.strerror}); choose another --curve") from None


def emit_classification(
    facts: LinearFacts, schedule: str, given: Schedule | None, curve: Path | None, *, as_json: bool
) -> None:
    """Plan one pass of logistic regression and print it."""
    from dataclasses import asdict

    from gratis.accounting import describe_guarantee
    from gratis.planning.one_pass_classification import plan_classification

    plan = plan_classification(facts, schedule=schedule, given=given)
    if curve is not None:
        _write(curve, [(one.times.tolist(), [*one.excess_loss.tolist(), one.final_excess_loss]) for one in plan.curves])
    members: list[dict[str, Any]] = [
        {
            "log_odds_variance": problem.signal_variance,
            "spectrum": problem.spectrum.label,
            "excess_log_loss": one.final_excess_loss,
            "accuracy": 1 - one.final_error_rate,
            "best_accuracy": 1 - problem.least_error_rate,
        }
        for problem, one in zip(plan.problems, plan.curves, strict=True)
    ]
    data = {
        "task": "classification",
        "algorithm": "one-pass",
        "schedule": plan.family,
        "curve": {"label": plan.schedule.label, **asdict(plan.schedule)},  # type: ignore[call-overload]
        "predicted_excess_log_loss": plan.excess_loss,
        "predicted_accuracy": plan.accuracy,
        "best_accuracy": plan.best_accuracy,
        "problems": members,
        "guarantee": describe_guarantee(plan.event, facts.budget) | {"neighbouring": str(facts.budget.neighbouring)},
        "alternatives": list(plan.alternatives),
        "reasons": list(plan.reasons),
        "assumptions": list(plan.assumptions),
    }
    problems = [
        [f"{m['log_odds_variance']:g}", m["spectrum"], f"{m['excess_log_loss']:.4g}", f"{m['accuracy']:.4g}",
         f"{m['best_accuracy']:.4g}"]
        for m in members
    ]  # fmt: skip
    others = [[str(row["schedule"]), f"{row['excess_log_loss']:.5g}", f"{row['low']:.4g} … {row['high']:.4g}"]
              for row in plan.alternatives]  # fmt: skip
    text = "\n".join(
        [
            *plan.reasons,
            "",
            table(["log odds' variance", "spectrum", "excess log loss", "accuracy", "at best"], problems),
            "",
            table(["schedule", "excess log loss", "range"], others),
            "",
            "Assumed: " + "; ".join(plan.assumptions) + ".",
        ]
    )
    emit(data, as_json=as_json, text=text)
