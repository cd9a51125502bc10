"""`gratis audit`: attack the trainers on the neighbours that are worst for them, and compare with the proof."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from gratis.cli.output import JSON_OPTION, emit

__all__ = ["app"]

app = typer.Typer(
    help="Attack a training procedure; exit code 3 if the attack does better than the proof allows.",
    no_args_is_help=True,
)

ALARM = 3

_MU = typer.Option(1.0, help="Gaussian-DP parameter that the training claims.")
_RUNS = typer.Option(2000, help="Trainings on each of the two neighbours.")
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
    from gratis.specs.checks import check_count, check_positive
    from gratis.specs.events import OnePassIteration
    from gratis.specs.neighbouring import Neighbouring
    from gratis.specs.sequences import Runs
    from gratis.training.one_pass import OnePassLoss, OnePassTrainer

    n, mu = check_count("n", n, minimum=2), check_positive("mu", mu)
    event = OnePassIteration(
        step_sizes=Runs.constant(1.0, n), clip_norms=Runs.constant(1.0, n),
        noise_stds=Runs((0.0, 2 * 1.001 / mu), (n - 1, 1)), rounding_inflation=1.001,
        neighbouring=Neighbouring.REPLACE_ONE,
    )  # fmt: skip
    pair = tempting_neighbours(n, step_size=1.0, clip_norm=1.0) if tempting else pushing_neighbours(n, 5)

    def trainer(y: Any) -> Callable[[int], Any]:
        def train(_: int) -> Any:
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
    from gratis.models.linear import LinearModel
    from gratis.specs.neighbouring import Neighbouring
    from gratis.training.full_batch import descend, descent_event

    relation = Neighbouring.parse(neighbouring)
    event = descent_event(n, 5, 1, steps, mu=mu, neighbouring=relation)
    pair = pushing_neighbours(n, 5)
    if relation is Neighbouring.ZERO_OUT:
        # A row that is not finite contributes nothing: the record zeroed out, with n unchanged.
        other = pair.y.copy()
        other[0] = np.nan
        pair = Neighbours(pair.X, pair.y, other, pair.direction)

    def trainer(y: Any) -> Callable[[int], Any]:
        def train(_: int) -> Any:
            return descend(
                pair.X, y, LinearModel(), steps=steps, clip_norm=1.0, learning_rate=1.0, mu=mu, neighbouring=relation,
                noise=NoiseSource.secure(), average=False,
            ).parameters  # fmt: skip

        return train

    _audit("full batch", trainer, pair, event, runs, delta, confidence, workers, picture, as_json)


@app.command("estimator")
def estimator(
    name: str = typer.Argument(..., help="linear or logistic."),
    epsilon: float = typer.Option(2.0, help="Budget of one fit, with --delta."),
    algorithm: str = typer.Option("auto", help="auto, full-batch or one-pass."),
    preprocessing: str = typer.Option("private", help="private or none."),
    n: int = typer.Option(200, "--n", help="Rows."),
    d: int = typer.Option(3, "--d", help="Columns."),
    neighbouring: str = _RELATION,
    runs: int = typer.Option(200, help="Fits on each of the two neighbours."),
    delta: float = _DELTA,
    confidence: float = _CONFIDENCE,
    workers: int = _WORKERS,
    picture: Path | None = _PICTURE,
    as_json: bool = JSON_OPTION,
) -> None:
    """Audit a whole estimator, preprocessing included: one outlying record is exchanged for its opposite."""
    import numpy as np

    from gratis.audits.worst_case import Neighbours
    from gratis.estimators.linear import DPLinearRegression
    from gratis.estimators.logistic import DPLogisticRegression
    from gratis.specs.checks import check_count
    from gratis.specs.errors import GratisError

    kinds: dict[str, Any] = {"linear": DPLinearRegression, "logistic": DPLogisticRegression}
    if name not in kinds:
        raise GratisError(f"unknown estimator {name!r}; expected one of {', '.join(kinds)}")
    rng = np.random.default_rng(0)  # of the public, synthetic rows; noise comes from the operating system
    X = rng.standard_normal((check_count("n", n, minimum=10), check_count("d", d)))
    signal = X[:, 0] + 0.5 * rng.standard_normal(n)
    X[0], far = 0.0, 1.0 if name == "logistic" else 100.0
    X[0, 0] = 10.0
    y, other = signal.copy(), signal.copy()
    y[0], other[0] = far, -far
    if name == "logistic":
        y, other = (y > 0).astype(float), (other > 0).astype(float)

    def fitted(labels: Any) -> Any:
        model = kinds[name](
            epsilon=epsilon, delta=delta, neighbouring=neighbouring, preprocessing=preprocessing, algorithm=algorithm
        )
        return model.fit(X, labels)

    def trainer(labels: Any) -> Callable[[int], Any]:
        def train(_: int) -> Any:
            model = fitted(labels)
            return np.append(np.ravel(model.coef_), np.ravel(model.intercept_))

        return train

    event = fitted(y).certificate_.event
    _audit(
        f"{name} estimator ({algorithm})", trainer, Neighbours(X, y, other, None), event, runs, delta, confidence,
        workers, picture, as_json,
    )  # fmt: skip


def _audit(
    name: str, trainer: Callable[[Any], Callable[[int], Any]], pair: Any, event: Any, runs: int, delta: float,
    confidence: float, workers: int, picture: Path | None, as_json: bool,
) -> None:  # fmt: skip
    from gratis.audits.distinguishing import audit_trainer

    def progress(portions: Iterable[Any]) -> Iterable[Any]:
        import sys

        if as_json or not sys.stderr.isatty():
            return portions
        from rich.console import Console
        from rich.progress import track

        return track(portions, total=50, description=f"{name}: training", console=Console(stderr=True), transient=True)

    audit = audit_trainer(
        trainer(pair.other_y), trainer(pair.y), event, runs=runs, direction=pair.direction, delta=delta,
        confidence=confidence, workers=workers, progress=progress,
    )  # fmt: skip
    if picture is not None:
        draw_roc(audit, picture)
    text = (
        f"{name}, {event.neighbouring}: {audit.verdict}\n"
        f"audited over proved epsilon: {audit.tightness:.0%} assuming nothing; if outputs are normal, mu ≥ "
        f"{audit.mu_if_normal.low:.4g} ({audit.mu_if_normal.low / audit.proved_mu:.0%} of the proved)"
    )
    data = {"audit": name, "neighbouring": str(event.neighbouring), **audit.to_json()}
    emit(data, as_json=as_json, text=text)
    if audit.alarm:
        raise typer.Exit(ALARM)


def draw_roc(audit: Any, path: Path) -> None:
    """Draw the attack's ROC and the curve that no attack may cross."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from scipy.special import ndtr, ndtri

    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rates = np.linspace(0, 1, 500)[1:-1]
    axes.plot(*audit.roc(), label="attack")
    axes.plot(rates, ndtr(ndtri(rates) + audit.proved_mu), "--", label=f"proved: mu = {audit.proved_mu:.3g}")
    axes.plot([0, 1], [0, 1], ":", color="grey")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", title="ALARM" if audit.alarm else "consistent")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
