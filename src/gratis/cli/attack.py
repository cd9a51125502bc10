"""`gratis audit membership`, `one-run`, `tracing`: attacks on an estimator, or on what made a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gratis.cli.output import JSON_OPTION, emit, showing
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


__all__ = ["membership", "one_run", "tracing"]

_ALARM = 3
_TARGET = typer.Argument(..., help="An estimator's name (see `estimator`) or a model file.")
_EPSILON = typer.Option(None, help="Budget of one training; 2 if left out.")
_DELTA = typer.Option(None, help="Budget, and delta at which epsilon is compared; 1e-5 if left out.")
_ALGORITHM = typer.Option(None, help="full-batch or one-pass (linear and logistic).")
_PREPROCESSING = typer.Option(None, help="private, or none: the rows are on a scale of 1 already (default).")
_RELATION = typer.Option(None, help="replace-one: a coin decides between two targets; zero-out: in or out.")
_CONFIDENCE = typer.Option(0.95, help="Probability that all bounds hold.")
_SEED = typer.Option(0, help="Of the synthetic rows and coins; noise comes from the operating system.")


def membership(
    target: str = _TARGET,
    epsilon: float | None = _EPSILON,
    delta: float | None = _DELTA,
    algorithm: str | None = _ALGORITHM,
    preprocessing: str | None = _PREPROCESSING,
    neighbouring: str | None = _RELATION,
    n: int = typer.Option(60, "--n", help="Records, members or not."),
    d: int | None = typer.Option(None, "--d", help="Columns; half of the records, or the model's, if left out."),
    shadows: int = typer.Option(32, help="Trainings on which the attack learns what a member looks like."),
    targets: int = typer.Option(16, help="Trainings that are attacked."),
    confidence: float = _CONFIDENCE,
    seed: int = _SEED,
    as_json: bool = JSON_OPTION,
) -> None:
    """Membership inference with shadow models (LiRA): which of the records was the model trained on?"""
    import numpy as np

    from gratis.audits.canaries import canaries
    from gratis.audits.membership import infer_membership

    create, columns, level = _target(target, epsilon, delta, algorithm, preprocessing, neighbouring)
    rng = np.random.default_rng(seed)
    made = canaries(create, n, d or columns or max(1, n // 2), rng)
    with showing("membership: training", quiet=as_json):
        found = infer_membership(
            made.train, made.score, n, made.event, rng=rng, shadows=shadows, targets=targets, delta=level,
            confidence=confidence,
        )  # fmt: skip
    rates = ", ".join(
        f"{rate.value:.3g} at a false positive rate of {at:g}" for at, rate in found.true_positive_rates.items()
    )
    _tell(
        f"{_name(target)}, {made.event.neighbouring}: area under the ROC {found.area.value:.3f} ({found.area.low:.3f} "
        f"to {found.area.high:.3f}; guessing .5), true positive rate {rates}\n{found.audit.verdict}",
        {"audit": target, "method": "membership", **found.to_json()}, alarm=found.alarm, as_json=as_json,
    )  # fmt: skip


def one_run(
    target: str = _TARGET,
    epsilon: float | None = _EPSILON,
    delta: float | None = _DELTA,
    algorithm: str | None = _ALGORITHM,
    preprocessing: str | None = _PREPROCESSING,
    neighbouring: str | None = _RELATION,
    n: int = typer.Option(1000, "--n", help="Canaries: records whose coin is guessed."),
    d: int | None = typer.Option(None, "--d", help="Columns; half of the canaries, or the model's, if left out."),
    confidence: float = _CONFIDENCE,
    seed: int = _SEED,
    as_json: bool = JSON_OPTION,
) -> None:
    """One training with a thousand canaries, whose coins are guessed (Steinke, Nasr & Jagielski 2023)."""
    import numpy as np

    from gratis.audits.canaries import canaries
    from gratis.audits.one_run import audit_one_run

    create, columns, level = _target(target, epsilon, delta, algorithm, preprocessing, neighbouring)
    rng = np.random.default_rng(seed)
    made = canaries(create, n, d or columns or max(1, n // 2), rng)
    found = audit_one_run(made.train, made.score, n, made.event, rng=rng, delta=level, confidence=confidence)
    right, guesses = found.details["accuracy"], found.details["guesses"]
    _tell(
        f"{_name(target)}, {made.event.neighbouring}: {right:.1%} of {guesses} guesses right\n{found.verdict}",
        {"audit": target, "method": "one run", **found.to_json()}, alarm=found.alarm, as_json=as_json,
    )  # fmt: skip


def tracing(
    target: str = typer.Argument("linear", help="linear, or a model file of a linear regression."),
    epsilon: float | None = _EPSILON,
    delta: float | None = _DELTA,
    algorithm: str | None = _ALGORITHM,
    preprocessing: str | None = _PREPROCESSING,
    neighbouring: str | None = _RELATION,
    n: int = typer.Option(100, "--n", help="Records of one training."),
    d: int | None = typer.Option(None, "--d", help="Columns; half of the records, or the model's, if left out."),
    runs: int = typer.Option(100, help="Trainings, each on fresh records."),
    confidence: float = _CONFIDENCE,
    seed: int = _SEED,
    as_json: bool = JSON_OPTION,
) -> None:
    """S2's tracing attack, behind its minimax lower bound: do coefficients correlate with their own records?"""
    import numpy as np

    from gratis.audits.canaries import law
    from gratis.audits.tracing import audit_tracing

    create, columns, level = _target(target, epsilon, delta, algorithm, preprocessing, neighbouring)
    rng = np.random.default_rng(seed)
    made = law(create, n, d or columns or max(1, n // 2), rng)
    with showing("tracing: training", quiet=as_json):
        found = audit_tracing(
            made.train, made.draw, made.truth, made.event, n_records=n, rng=rng, runs=runs, delta=level,
            confidence=confidence,
        )  # fmt: skip
    members, fresh = found.members, found.fresh
    _tell(
        f"{_name(target)}, {made.event.neighbouring}: mean of A over members {members.value:.3g} ({members.low:.3g} to "
        f"{members.high:.3g}), over fresh records {fresh.value:.3g} ({fresh.low:.3g} to {fresh.high:.3g})\n"
        f"{found.audit.verdict}",
        {"audit": target, "method": "tracing", **found.to_json()}, alarm=found.alarm, as_json=as_json,
    )  # fmt: skip


def _target(
    target: str, epsilon: float | None, delta: float | None, algorithm: str | None, preprocessing: str | None,
    neighbouring: str | None,
) -> tuple[Callable[[], object], int | None, float]:  # fmt: skip
    """Return what makes the estimator, its columns if it comes from a file, and δ."""
    from gratis.audits.canaries import attacked_estimator
    from gratis.audits.estimators import ESTIMATORS, verified_model

    given = {"epsilon": epsilon, "delta": delta, "algorithm": algorithm, "preprocessing": preprocessing}
    given |= {"neighbouring": neighbouring}
    if target in ESTIMATORS:
        usual: dict[str, object] = {"epsilon": 2.0, "delta": 1e-5, "preprocessing": "none"}
        options = usual | {name: value for name, value in given.items() if value is not None}
        return attacked_estimator(target, options), None, 1e-5 if delta is None else delta
    if not Path(target).is_file():
        raise GratisError(f"{target!r} is no model file, and no estimator: {', '.join(ESTIMATORS)}")
    found = verified_model(target)
    return attacked_estimator(target, given), int(found.n_features_in_), float(found.delta)


def _name(target: str) -> str:
    return f"{Path(target).name}: certificate valid; the same options on synthetic rows" if "." in target else target


def _tell(text: str, data: Mapping[str, object], *, alarm: bool, as_json: bool) -> None:
    emit(data, as_json=as_json, text=text)
    if alarm:
        raise typer.Exit(_ALARM)
