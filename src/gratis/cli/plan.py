"""`gratis plan`: what privacy will cost, before data is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from gratis.cli import plan_network, plan_spectrum
from gratis.cli.output import JSON_OPTION, emit, table
from gratis.cli.plan_model import MODELS, plan_command
from gratis.records.errors import GratisError

__all__ = ["app"]

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
    as_json: bool = JSON_OPTION,
) -> None:
    """Theory of linear regression: the risk of every one-pass schedule, and of plain descent, under what is assumed."""
    from gratis.accounting import describe_guarantee
    from gratis.planning.assumptions import LinearFacts
    from gratis.planning.inverse import needed_for_target
    from gratis.planning.linear import plan_linear
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
    plan = plan_linear(facts, algorithm=algorithm, schedule=schedule)
    limits = one_pass_limits(facts, plan)
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
            *limits.words,
            *([needed["words"]] if needed else []),
            "",
            table(["algorithm", "schedule", "excess risk", "range"], rows),
            "",
            "Assumed: " + "; ".join(plan.prediction.assumptions) + ".",
        ]
    )
    emit(data, as_json=as_json, text=text)


for _model in MODELS:
    app.command(_model)(plan_command(_model))
app.command("network")(plan_network.network)
app.command("spectrum")(plan_spectrum.spectrum)


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
