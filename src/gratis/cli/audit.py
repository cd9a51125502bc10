"""`gratis audit`: attack the trainers on the neighbours that are worst for them, and compare with the proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperGroup

from gratis.cli import attack
from gratis.cli.output import JSON_OPTION, emit, showing
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gratis.audits.distinguishing import Audit
    from gratis.audits.estimators import EstimatorAudit
    from gratis.audits.replay import ReplayAudit
    from gratis.audits.runs import Trainer
    from gratis.audits.worst_case import Neighbours
    from gratis.records.events import Event

    Array = NDArray[np.float64]

__all__ = ["app"]

T = TypeVar("T")


class _Targets(TyperGroup):
    """Commands by name; any other word is an estimator's name or a model file."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the command before a word that is none."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from gratis.audits.estimators import ESTIMATORS, estimator_name

            args = ["estimator" if estimator_name(args[0]) in ESTIMATORS else "model", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Targets,
    help="Attack a training procedure: `gratis audit model.gratis`, `gratis audit linear`, or a command below; exit "
    "code 3 if the attack does better than the proof allows.",
    no_args_is_help=True,
)

ALARM = 3

_MU = typer.Option(1.0, help="Gaussian-DP parameter that the training claims.")
_RUNS = typer.Option(2000, help="Trainings on each of the two neighbours.")
_FITS = typer.Option(200, help="Fits on each of the two neighbours.")
_DELTA = typer.Option(1e-5, help="Delta at which epsilon is compared.")
_CONFIDENCE = typer.Option(0.99, help="Probability that an honest program raises no alarm.")
_WORKERS = typer.Option(1, help="Processes; -1 for all cores.")
_PICTURE = typer.Option(None, help="Draw the ROC beside the proved curve into this PNG file.")
_RELATION = typer.Option("replace-one", help="replace-one or zero-out.")


@app.command("one-pass")
def one_pass(
    mu: float = _MU,
    n: int = typer.Option(50, "--n", help="Rows of the pass."),
    tempting: bool = typer.Option(False, help="Use the stream that breaks a trainer without step cap (d = n)."),
    runs: int = _RUNS,
    delta: float = _DELTA,
    confidence: float = _CONFIDENCE,
    workers: int = _WORKERS,
    picture: Path | None = _PICTURE,
    as_json: bool = JSON_OPTION,
) -> None:
    """Audit the one-pass trainer (replace-one neighbours, squared loss)."""
    from gratis.audits.worst_case import pushing_neighbours, tempting_neighbours
    from gratis.mechanisms.noise import NoiseSource
    from gratis.records.checks import check_count, check_positive
    from gratis.records.events import OnePassIteration
    from gratis.records.neighbouring import Neighbouring
    from gratis.records.sequences import Runs
    from gratis.stages.one_pass import OnePassLoss, OnePassTrainer

    n, mu = check_count("n", n, minimum=2), check_positive("mu", mu)
    event = OnePassIteration(
        step_sizes=Runs.constant(1.0, n), clip_norms=Runs.constant(1.0, n),
        noise_stds=Runs((0.0, 2 * 1.001 / mu), (n - 1, 1)), rounding_inflation=1.001,
        neighbouring=Neighbouring.REPLACE_ONE,
    )  # fmt: skip
    pair = tempting_neighbours(n, step_size=1.0, clip_norm=1.0) if tempting else pushing_neighbours(n, 5)

    def trainer(y: Array) -> Trainer:
        def train(_: int) -> Array:
            run = OnePassTrainer(event, OnePassLoss.SQUARED, n_features=pair.X.shape[1], noise=NoiseSource.secure())
            run.consume(pair.X, y)
            return run.release()

        return train

    _audit("one pass", trainer, pair, event, runs, delta, confidence, workers, picture, as_json)


@app.command("full-batch")
def full_batch(
    mu: float = _MU,
    n: int = typer.Option(50, "--n", help="Rows."),
    steps: int = typer.Option(10, help="Gradient steps."),
    neighbouring: str = _RELATION,
    runs: int = _RUNS,
    delta: float = _DELTA,
    confidence: float = _CONFIDENCE,
    workers: int = _WORKERS,
    picture: Path | None = _PICTURE,
    as_json: bool = JSON_OPTION,
) -> None:
    """Audit full-batch private gradient descent (squared loss)."""
    import numpy as np

    from gratis.audits.worst_case import Neighbours, pushing_neighbours
    from gratis.mechanisms.noise import NoiseSource
    from gratis.mechanisms.rows import Rows
    from gratis.models.generalised_linear import LinearModel
    from gratis.records.neighbouring import Neighbouring
    from gratis.stages.full_batch import descend, descent_event

    relation = Neighbouring.parse(neighbouring)
    event = descent_event(n, 5, 1, steps, mu=mu, neighbouring=relation)
    pair = pushing_neighbours(n, 5)
    if relation is Neighbouring.ZERO_OUT:
        # A row that is not finite contributes nothing: the record zeroed out, with n unchanged.
        other = pair.y.copy()
        other[0] = np.nan
        pair = Neighbours(pair.X, pair.y, other, pair.direction)

    def trainer(y: Array) -> Trainer:
        def train(_: int) -> Array:
            return descend(
                Rows.held(pair.X, y), LinearModel(), steps=steps, clip_norm=1.0, learning_rate=1.0, mu=mu,
                neighbouring=relation, noise=NoiseSource.secure(), average=False,
            ).parameters  # fmt: skip

        return train

    _audit("full batch", trainer, pair, event, runs, delta, confidence, workers, picture, as_json)


@app.command("estimator")
def estimator(
    name: str = typer.Argument(
        ...,
        help="linear, logistic, mlp, additive-regressor, …-classifier, random-features-regressor or …-classifier.",
    ),
    epsilon: float = typer.Option(2.0, help="Budget of one fit, with --delta."),
    algorithm: str | None = typer.Option(None, help="auto, full-batch or one-pass (linear and logistic)."),
    preprocessing: str = typer.Option("private", help="private, or none: then the rows are the worst case."),
    n_features: int | None = typer.Option(None, help="Random features."),
    width: int | None = typer.Option(None, help="Hidden units of the network."),
    n: int = typer.Option(200, "--n", help="Rows."),
    d: int = typer.Option(3, "--d", help="Columns."),
    neighbouring: str = _RELATION,
    runs: int = _FITS,
    delta: float = _DELTA,
    confidence: float = _CONFIDENCE,
    workers: int = _WORKERS,
    picture: Path | None = _PICTURE,
    as_json: bool = JSON_OPTION,
) -> None:
    """Audit a whole estimator, preprocessing included: one record is exchanged for its opposite."""
    from gratis.audits.estimators import estimator_audit, estimator_name

    name = estimator_name(name)
    options = {
        "epsilon": epsilon, "delta": delta, "neighbouring": neighbouring, "preprocessing": preprocessing,
        "algorithm": algorithm, "n_features": n_features, "width": width,
    }  # fmt: skip
    prepared = estimator_audit(name, n=n, d=d, options=options)
    event = prepared.create().fit(prepared.X, prepared.y).certificate_.event
    title = name if algorithm is None else f"{name} ({algorithm})"
    _audit(title, prepared.trainer, prepared, event, runs, delta, confidence, workers, picture, as_json)


@app.command("model")
def model(
    file: Path = typer.Argument(..., help="A model file written by Gratis."),
    n: int | None = typer.Option(None, "--n", help="Rows of the audit; the certificate's, at most 200, if left out."),
    runs: int = _FITS,
    delta: float | None = typer.Option(None, help="Delta at which epsilon is compared; the model's if left out."),
    confidence: float = _CONFIDENCE,
    workers: int = _WORKERS,
    picture: Path | None = _PICTURE,
    as_json: bool = JSON_OPTION,
) -> None:
    """Audit what made a model file: verify its certificate, then train the same way on neighbours, many times."""
    from gratis.audits.estimators import ESTIMATORS, certified_records, model_audit

    if not file.is_file():
        raise GratisError(f"{str(file)!r} is no model file, and no estimator: {', '.join(ESTIMATORS)}")
    prepared, found, rows = model_audit(str(file), n=n)
    event = prepared.create().fit(prepared.X, prepared.y).certificate_.event
    certificate = found.certificate_
    records = certified_records(certificate)
    insecure = "" if certificate.randomness["secure"] else "; its noise came from a user's seed: NO protection"
    name = (
        f"{file.name} ({type(found).__name__}): certificate valid{insecure}; "
        f"the same training on {rows} synthetic rows" + (f" (the model's had {records})" if rows != records else "")
    )
    facts = {
        "model": str(file), "certificate_valid": True, "secure_randomness": certificate.randomness["secure"],
        "records": records, "audited_records": rows,
    }  # fmt: skip
    level = float(found.delta) if delta is None else delta
    _audit(name, prepared.trainer, prepared, event, runs, level, confidence, workers, picture, as_json, facts)


@app.command("replay")
def replay(
    target: str = typer.Argument(..., help="An estimator's name (see `estimator`) or a model file."),
    pairs: int = typer.Option(200, help="Hostile neighbours."),
    epsilon: float | None = typer.Option(None, help="Budget of one fit, with --delta; 2 if left out."),
    delta: float | None = typer.Option(None, help="1e-5 if left out."),
    algorithm: str | None = typer.Option(None, help="auto, full-batch or one-pass (linear and logistic)."),
    preprocessing: str | None = typer.Option(None, help="private or none."),
    on_invalid: str | None = typer.Option(None, help="raise, zero or impute."),
    neighbouring: str | None = typer.Option(None, help="replace-one or zero-out."),
    n_features: int | None = typer.Option(None, help="Random features."),
    width: int | None = typer.Option(None, help="Hidden units of the network."),
    n: int | None = typer.Option(None, "--n", help="Rows, at most 40 of them are made."),
    d: int = typer.Option(3, "--d", help="Columns, at most 5 of them are made."),
    classes: int = typer.Option(2, help="Classes of a classifier."),
    seed: int = typer.Option(0, help="Of the synthetic rows; noise comes from the operating system."),
    persons: bool = typer.Option(False, "--persons", help="Neighbours differ in a person with all rows."),
    cluster: bool = typer.Option(False, "--cluster", help="Rows lie on workers of Dask (in threads); no persons."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Replay one fit's releases on hostile neighbours: exact, and sees everything that happens before the noise.

    Every release of a fit is recorded; the same outputs are played to a fit on a neighbour, and the values before noise
    are compared: √Σ‖Δ‖²/σ² must not exceed the certified mu. Exceptions, warnings, the sequence of calls and all that
    is published must be the same.
    """
    from gratis.audits.estimators import ESTIMATORS, audit, estimator_name, make_estimator, verified_model
    from gratis.rows.cluster_client import connected

    target = estimator_name(target)
    threads = connected("threads:2" if cluster else None)
    options = {
        "epsilon": epsilon, "delta": delta, "algorithm": algorithm, "preprocessing": preprocessing,
        "on_invalid": on_invalid, "neighbouring": neighbouring, "n_features": n_features, "width": width,
    }  # fmt: skip
    if target in ESTIMATORS:
        chosen = options | {"epsilon": 2.0 if epsilon is None else epsilon, "delta": 1e-5 if delta is None else delta}
        made = make_estimator(target, chosen)
        with threads, showing("replaying hostile pairs", quiet=as_json):
            found = audit(
                made, rows=n, columns=d, classes=classes, pairs=pairs, seed=seed, persons=persons, cluster=cluster
            )
        _emit_replay(target, found, as_json=as_json)
        return
    if not Path(target).is_file():
        raise GratisError(f"{target!r} is no model file, and no estimator: {', '.join(ESTIMATORS)}")
    given = [name for name, value in options.items() if value is not None] + ["persons"] * persons
    if given:
        raise GratisError(f"a model file states its own options: leave out --{given[0].replace('_', '-')}")
    model = verified_model(target)
    with threads, showing("replaying hostile pairs", quiet=as_json):
        found = audit(model, rows=n, pairs=pairs, seed=seed, cluster=cluster)
    name = f"{Path(target).name} ({type(model).__name__}): certificate valid; the same options on synthetic rows"
    _emit_replay(name, found, as_json=as_json)


def _emit_replay(name: str, audit: ReplayAudit, *, as_json: bool) -> None:
    """Print the outcome; exit with 3 if a pair showed more than is certified, or none could be replayed."""
    if not audit.pairs:
        raise GratisError(f"{name}: {audit.verdict}")
    lines = [f"{name}: {audit.verdict}"]
    lines += [
        f"  {count} pairs: {what}, first in: {audit.examples[what]}"
        for what, count in audit.differences.most_common(10)
    ]
    if audit.largest_ratio:
        lines.append(f"largest ratio in: {audit.worst_pair}")
    lines += [f"not seen: {words}" for words in audit.limits]
    emit({"audit": name, "method": "replay", **audit.to_json()}, as_json=as_json, text="\n".join(lines))
    if audit.alarm:
        raise typer.Exit(ALARM)


app.command("membership")(attack.membership)
app.command("one-run")(attack.one_run)
app.command("tracing")(attack.tracing)


def _audit(
    name: str, trainer: Callable[[Array], Trainer], pair: Neighbours | EstimatorAudit, event: Event, runs: int,
    delta: float, confidence: float, workers: int, picture: Path | None, as_json: bool,
    facts: Mapping[str, object] | None = None,
) -> None:  # fmt: skip
    from gratis.audits.distinguishing import audit_trainer
    from gratis.audits.worst_case import Neighbours
    from gratis.records.neighbouring import Neighbouring

    worst = isinstance(pair, Neighbours)  # else an exchanged record, whatever the relation is
    direction = pair.direction if isinstance(pair, Neighbours) else None
    with showing(f"{name}: training", quiet=as_json):
        audit = audit_trainer(
            trainer(pair.other_y), trainer(pair.y), event, runs=runs, direction=direction,
            exchanged=not worst, delta=delta, confidence=confidence, workers=workers,
        )  # fmt: skip
    if picture is not None:
        draw_roc(audit, picture)
    once = worst or event.neighbouring is Neighbouring.REPLACE_ONE
    twice = "" if once else " (an exchanged record counts as two)"
    text = (
        f"{name}, {event.neighbouring}{twice}: {audit.verdict}\n"
        f"audited over proved epsilon: {audit.tightness:.0%} assuming nothing; if outputs are normal, mu ≥ "
        f"{audit.mu_if_normal.low:.4g} ({audit.mu_if_normal.low / audit.proved_mu:.0%} of the proved)"
    )
    data = {"audit": name, "neighbouring": str(event.neighbouring), **(facts or {}), **audit.to_json()}
    emit(data, as_json=as_json, text=text)
    if audit.alarm:
        raise typer.Exit(ALARM)


def draw_roc(audit: Audit, path: Path) -> None:
    """Draw the attack's ROC and the curve that no attack may cross."""
    import numpy as np
    from matplotlib.figure import Figure
    from scipy.special import ndtr, ndtri

    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    axes = figure.subplots()
    rates = np.linspace(0, 1, 500)[1:-1]
    axes.plot(*audit.roc(), label="attack")
    axes.plot(rates, ndtr(ndtri(rates) + audit.proved_mu), "--", label=f"proved: mu = {audit.proved_mu:.3g}")
    axes.plot([0, 1], [0, 1], ":", color="grey")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", title="ALARM" if audit.alarm else "consistent")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
