"""`gratis plan`: what privacy will cost, before data is touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gratis.cli.output import JSON_OPTION, emit, table
from gratis.cli.plan_model import MODELS, plan_command
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["app", "network", "spectrum"]

app = typer.Typer(help="Plan a private training run from public facts alone.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep sub-commands visible."""


@app.command("one-pass")
def one_pass(
    n: int = typer.Option(..., help="Number of rows (public)."),
    d: int = typer.Option(..., help="Number of columns."),
    mu: float | None = typer.Option(None, help="Budget as a Gaussian-DP parameter."),
    epsilon: float | None = typer.Option(None, help="Budget as epsilon, with --delta."),
    delta: float | None = typer.Option(None, help="Budget as delta, with --epsilon."),
    neighbouring: str = typer.Option("replace-one", help="replace-one or zero-out."),
    signal_variance: float | None = typer.Option(None, help="S = |Sigma^(1/2) theta*|^2; unknown if left out."),
    label_noise_variance: float | None = typer.Option(None, help="Variance of y given x; unknown if left out."),
    spectrum: str | None = typer.Option(
        None, help="isotropic, power:BETA, or a file with one eigenvalue a line; unknown if left out."
    ),
    alignment: float | None = typer.Option(
        None, help="How theta* lies in the spectrum: its squares go like eigenvalue^ALIGNMENT, 0 to 10; else unknown."
    ),
    algorithm: str = typer.Option("auto", help="auto, one-pass or full-batch."),
    schedule: str = typer.Option("best", help="best, poly:ALPHA, harmonic, free or free-clip."),
    target_r2: float | None = typer.Option(None, help="Also say how many rows, or which epsilon, reach this R²."),
    task: str = typer.Option("regression", help="regression, or classification (two classes, logistic loss)."),
    rate: float | None = typer.Option(
        None, help="Your own rate at the start (step size times n), with --clip and --schedule poly:ALPHA or harmonic."
    ),
    clip: float | None = typer.Option(None, help="Your own clip level: the clip norm over the root of d, with --rate."),
    offset: float | None = typer.Option(None, help="Of your own harmonic schedule: rate / (1 + t/OFFSET)."),
    curve: Path | None = typer.Option(None, help="Write the predicted risk along the pass into this CSV file."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Theory of one pass: the risk of every schedule, and of plain descent, under what is assumed.

    For classification --signal-variance is the variance of the true log odds.
    """
    from gratis.accounting import describe_guarantee
    from gratis.cli.plan_one_pass import emit_classification, given_schedule, write_curves
    from gratis.planning.assumptions import LinearFacts
    from gratis.planning.inverse import needed_for_target
    from gratis.planning.linear import plan_given_pass, plan_linear
    from gratis.planning.one_pass_limits import one_pass_limits
    from gratis.records.budget import Budget
    from gratis.records.neighbouring import Neighbouring

    facts = LinearFacts(
        n_records=n,
        n_features=d,
        budget=Budget(epsilon=epsilon, delta=delta, mu=mu, neighbouring=Neighbouring.parse(neighbouring)),
        signal_variance=signal_variance,
        label_noise_variance=label_noise_variance,
        spectrum=None if spectrum is None else _spectrum(spectrum),
        alignment=alignment,
    )
    given = given_schedule(schedule, rate, clip, offset)
    if task == "classification":
        if algorithm == "full-batch" or target_r2 is not None:
            raise GratisError(
                "--task classification is about one pass: leave out --algorithm full-batch and --target-r2"
            )
        emit_classification(facts, schedule, given, curve, as_json=as_json)
        return
    if task != "regression":
        raise GratisError(f"unknown task {task!r}; expected regression or classification")
    if given is not None and algorithm == "full-batch":
        raise GratisError("--rate and --clip belong to one-pass training")
    plan = (
        plan_linear(facts, algorithm=algorithm, schedule=schedule) if given is None else plan_given_pass(facts, given)
    )
    limits = one_pass_limits(facts, plan)
    if curve is not None:
        write_curves(curve, facts, plan)
    needed = None if target_r2 is None else needed_for_target(facts, target_r2=target_r2)
    guarantee = describe_guarantee(plan.event, facts.budget) | {"neighbouring": str(facts.budget.neighbouring)}
    data: dict[str, Any] = {
        "algorithm": plan.algorithm,
        "schedule": plan.schedule,
        "predicted_excess_risk": plan.prediction.value,
        "prediction": plan.prediction.to_json(),
        "settings": plan.settings.to_json(),
        "guarantee": guarantee,
        "limits": limits.to_json(),
        "alternatives": list(plan.alternatives),
        "reasons": list(plan.reasons),
    }
    if needed is not None:
        data["target"] = needed
    rows = [
        [
            str(row["algorithm"]),
            str(row["schedule"]),
            f"{row['predicted_excess_risk']:.5g}",
            f"{row['low']:.4g} … {row['high']:.4g}",
        ]
        for row in plan.alternatives
    ]
    text = "\n".join(
        [
            *plan.reasons,
            *([] if given is None else [f"Predicted excess risk of your schedule: {plan.prediction.value:.4g}."]),
            *limits.words,
            *([needed["words"]] if needed else []),
            "",
            *([table(["algorithm", "schedule", "excess risk", "range"], rows), ""] if rows else []),
            "Assumed: " + "; ".join(plan.prediction.assumptions) + ".",
        ]
    )
    emit(data, as_json=as_json, text=text)


for _model in MODELS:
    app.command(_model)(plan_command(_model))


def _spectrum(text: str) -> Any:
    from gratis.planning.one_pass.spectra import ExplicitSpectrum, parse_spectrum

    path = Path(text)
    if not path.is_file():
        return parse_spectrum(text)
    try:
        values = [float(word) for word in path.read_text(encoding="utf-8").replace(",", " ").split()]
    except (OSError, ValueError):
        raise GratisError(f"the spectrum file {text!r} must hold numbers, one eigenvalue a line") from None
    return ExplicitSpectrum(tuple(values), name=path.name)


_DEEPEST = 1000  # beyond it constants of the narrowest initializations fall below what a float holds


@app.command()
def network(
    n: int = typer.Option(..., help="Number of records (public)."),
    d: int = typer.Option(..., help="Inputs of the network; records have norm at most √d."),
    classes: int = typer.Option(..., help="Outputs: 1 is one logistic output, 2 and more softmax."),
    width: int = typer.Option(..., help="Width of the hidden layers."),
    depth: int = typer.Option(..., help="Weight matrices; smaller powers of two are compared too."),
    kl_budget: float = typer.Option(..., help="Largest KL divergence between runs on neighbours (not epsilon of DP)."),
    time: float = typer.Option(0.5, help="Reference run: steps x step size."),
    noise_std: float = typer.Option(0.01, help="Reference run: sigma of the noise sqrt(2 eta sigma^2)."),
    neighbouring: str = typer.Option("replace-one", help="replace-one or zero-out."),
    smoothness: float | None = typer.Option(None, help="With --jump: Lemma 3.2's bound for the network itself, too."),
    jump: float | None = typer.Option(None, help="Gradients differ by less than max(jump, smoothness x distance)."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Compare initializations and depths of a ReLU network by what noisy training of it leaks."""
    from gratis.planning.initialization import compare_initializations
    from gratis.records.errors import GratisError
    from gratis.records.neighbouring import Neighbouring

    if (smoothness is None) != (jump is None):
        raise GratisError("Lemma 3.2 needs both --smoothness and --jump")
    if depth > _DEEPEST:
        raise GratisError(f"--depth must be at most {_DEEPEST} weight matrices, got {depth}")
    found = compare_initializations(
        n,
        d,
        classes,
        width=width,
        depth=depth,
        kl_budget=kl_budget,
        time=time,
        noise_std=noise_std,
        neighbouring=Neighbouring.parse(neighbouring),
        roughness=None if smoothness is None or jump is None else (smoothness, jump),
    )
    rows = [
        [
            choice.scheme,
            str(choice.depth),
            f"{choice.gradient_norm_constant:.4g}",
            f"{choice.kl_of_reference_run:.4g}",
            f"{choice.published_kl_of_reference_run:.4g}",
            f"{choice.time:.4g}",
            f"{choice.noise_std:.4g}",
            f"{choice.excess_risk_bound:.4g}",
            *([] if smoothness is None else [f"{choice.general_kl_of_reference_run:.4g}"]),
        ]
        for choice in found.choices
    ]
    header = ["initialization", "depth", "B", "KL", "KL (S3 prints)", "best T", "best sigma", "excess risk"]
    if smoothness is not None:
        header.append("KL (Lemma 3.2)")
    text = "\n".join(
        [
            *found.reasons,
            "",
            table(header, rows),
            "",
            f"KL: upper bound for T = {time:g}, sigma = {noise_std:g}, {found.neighbouring}. best T, best sigma, "
            f"excess risk: least bound under KL <= {kl_budget:g}.",
            "Assumed: " + "; ".join(found.assumptions) + ".",
        ]
    )
    emit(found.to_json(), as_json=as_json, text=text)


@app.command()
def spectrum(
    file: Path | None = typer.Argument(
        None, help="A .npy file: public second moments of the features (a square matrix), or their eigenvalues."
    ),
    power: float | None = typer.Option(None, help="Instead of a file: eigenvalues k^-POWER, with --d."),
    d: int | None = typer.Option(None, "--d", help="Columns, with --power."),
    n: int = typer.Option(..., "--n", help="Rows (public)."),
    epsilon: float = typer.Option(..., help="Budget."),
    delta: float = typer.Option(..., help="Budget."),
    neighbouring: str = typer.Option("replace-one", help="replace-one or zero-out."),
    distance: float = typer.Option(1.0, help="Bound on the length of the best parameters."),
    largest_norm: float | None = typer.Option(
        None, help="Bound on the length of a row; the root of its mean square if left out."
    ),
    picture: Path | None = typer.Option(None, help="Draw the coefficients and the bound against k into this PNG file."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Say whether private descent on these features pays for all dimensions or for a few (S4's bound)."""
    import numpy as np

    from gratis.accounting import calibrate_mu
    from gratis.planning.bounds.effective_dimension import effective_dimension
    from gratis.planning.bounds.restricted_lipschitz import (
        LipschitzCoefficients,
        minimised_excess_risk_upper_bound,
        power_law_rate,
        rank_rate,
    )
    from gratis.records.budget import Budget
    from gratis.records.neighbouring import Neighbouring

    moments = _moments(file, power, d)
    trace = float(np.trace(moments) if moments.ndim == 2 else moments.sum())
    if not trace > 0:
        raise GratisError("the second moments must be positive semidefinite and not zero")
    norm = trace**0.5 if largest_norm is None else largest_norm
    coefficients = LipschitzCoefficients.of_covariance(moments, largest_norm=norm)
    budget = Budget(epsilon=epsilon, delta=delta, neighbouring=Neighbouring.parse(neighbouring))
    found = effective_dimension(
        coefficients, distance=distance, n_records=n, mu=calibrate_mu(budget), neighbouring=budget.neighbouring
    )
    # Theorem 3.5: fresh records, by the stability of the mean iterate.
    fresh = minimised_excess_risk_upper_bound(
        coefficients,
        distance=distance,
        n_records=n,
        mu=calibrate_mu(budget),
        neighbouring=budget.neighbouring,
        population=True,
    )
    rank = int(np.count_nonzero(coefficients.tail)) + 1
    rates = {"rank": rank, "rank_rate": rank_rate(rank=rank, n_records=n, epsilon=epsilon, delta=delta)}
    words = f"Rates in units of largest norm x distance, constants left out: {rates['rank_rate']:.3g} for rank {rank}"
    if 0.5 < found.decay_exponent < np.inf:
        rate, k = power_law_rate(
            decay=found.decay_exponent, n_records=n, epsilon=epsilon, delta=delta, dimension=found.dimension
        )
        rates |= {"power_law_rate": rate, "power_law_k": k}
        words += f", {rate:.3g} by the decay (k = {k})"
    if picture is not None:
        _draw(found, picture)
    # Powers of ten, the k of the bound, and the last: enough to see where gradients end.
    shown = sorted({*(10**e for e in range(8) if 10**e < found.dimension), found.bound.k, found.dimension})
    left = dict(zip(shown, coefficients.at(np.array(shown)).tolist(), strict=True))
    seen = f"The noise sees {found.bound.k} of {found.dimension} dimensions"
    emit(
        {
            "dimension": found.dimension,
            "effective_dimension": found.bound.k,
            "is_low_dimensional": found.is_low_dimensional,
            "excess_risk_bound": found.bound.excess_risk,
            "excess_risk_bound_with_all": found.full_dimension_bound,
            "excess_population_risk_bound": fresh.excess_risk,
            "population_k": fresh.k,
            "lipschitz_coefficients": {"0": coefficients.per_record, **{str(k): value for k, value in left.items()}},
            "decay_exponent": found.decay_exponent,
            "largest_norm": norm,
            "neighbouring": budget.neighbouring,
            **rates,
            "words": found.words,
        },
        as_json=as_json,
        text="\n".join(
            [
                f"{seen}: {found.words}.",
                table(
                    ["k", "gradient outside k dimensions, G_k", "of G_0"],
                    [[str(k), f"{value:.3g}", f"{value / coefficients.per_record:.1%}"] for k, value in left.items()],
                ),
                f"On fresh records the excess risk is at most {fresh.excess_risk:.3g} (S4, Theorem 3.5; its "
                f"constants included, k = {fresh.k}).",
                f"{words}.",
            ]
        ),
    )


def _moments(file: Path | None, power: float | None, d: int | None) -> NDArray[np.float64]:
    import numpy as np

    from gratis.records.checks import check_count, check_finite

    if file is None:
        if power is None or d is None:
            raise GratisError("give a .npy file, or --power and --d")
        columns = check_count("d", d)
        if columns > 10**7:
            raise GratisError("--d must be at most 10 million columns")
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.arange(1.0, columns + 1) ** -check_finite("power", power))
    if power is not None or d is not None:
        raise GratisError("give a .npy file, or --power and --d, not both")
    try:
        return np.asarray(np.load(file, allow_pickle=False), dtype=np.float64)
    except (OSError, ValueError, TypeError, EOFError):
        raise GratisError(f"{str(file)!r} is no .npy file of numbers") from None


def _draw(found: object, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    found.draw(figure)  # type: ignore[attr-defined]
    figure.savefig(path, dpi=120)
