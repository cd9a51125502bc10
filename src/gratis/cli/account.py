"""`gratis account`: conversions between privacy parameters, and what each composition theorem costs."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gratis.cli.output import JSON_OPTION, emit, table
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

if TYPE_CHECKING:
    from gratis.records.events import Event

__all__ = ["app"]

_ORDERS = (2, 4, 8, 16, 32, 64)

app = typer.Typer(help="Exact conversions between mu, epsilon and delta.", no_args_is_help=True)

_RELATION = typer.Option(
    "replace-one",
    "--neighbouring",
    help="Relation that the numbers are meant under: replace-one or zero-out.",
)


@app.command()
def epsilon(
    mu: float = typer.Option(..., help="Gaussian-DP parameter."),
    delta: float = typer.Option(..., help="Delta, strictly between 0 and 1."),
    neighbouring: str = _RELATION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Epsilon of mu-GDP at delta, rounded up."""
    from gratis.accounting import gdp_epsilon_upper_bound, zcdp_epsilon_upper_bound

    relation = Neighbouring.parse(neighbouring)
    value = gdp_epsilon_upper_bound(mu=mu, delta=delta)
    weaker = zcdp_epsilon_upper_bound(rho=mu * mu / 2, delta=delta)
    emit(
        {
            "epsilon": value,
            "delta": delta,
            "mu": mu,
            "neighbouring": str(relation),
            "epsilon_by_zcdp": weaker,
        },
        as_json=as_json,
        text=f"{mu:g}-GDP is ({value:.6g}, {delta:g})-DP under {relation} (by zCDP one would only know {weaker:.6g})",
    )


@app.command()
def mu(
    epsilon: float = typer.Option(..., help="Epsilon, not negative."),
    delta: float = typer.Option(..., help="Delta, strictly between 0 and 1."),
    neighbouring: str = _RELATION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Largest mu whose mu-GDP implies (epsilon, delta)-DP, rounded down."""
    from gratis.accounting import gdp_mu_lower_bound

    relation = Neighbouring.parse(neighbouring)
    value = gdp_mu_lower_bound(epsilon=epsilon, delta=delta)
    emit(
        {"mu": value, "epsilon": epsilon, "delta": delta, "neighbouring": str(relation)},
        as_json=as_json,
        text=f"({epsilon:g}, {delta:g})-DP is met by {value:.6g}-GDP under {relation}",
    )


@app.command()
def delta(
    mu: float = typer.Option(..., help="Gaussian-DP parameter."),
    epsilon: float = typer.Option(..., help="Epsilon, not negative."),
    neighbouring: str = _RELATION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Delta of mu-GDP at epsilon, rounded up."""
    from gratis.accounting import gdp_delta_upper_bound

    relation = Neighbouring.parse(neighbouring)
    value = gdp_delta_upper_bound(mu=mu, epsilon=epsilon)
    emit(
        {"delta": value, "mu": mu, "epsilon": epsilon, "neighbouring": str(relation)},
        as_json=as_json,
        text=f"{mu:g}-GDP is ({epsilon:g}, {value:.6g})-DP under {relation}",
    )


@app.command()
def total(
    files: list[Path] = typer.Argument(..., help="Certificates, plans or model files on the same data set."),
    delta: float = typer.Option(..., help="Delta, strictly between 0 and 1."),
    rows_per_person: int = typer.Option(1, help="How many rows may belong to one person."),
    as_json: bool = JSON_OPTION,
) -> None:
    """What several releases prove together: mu, epsilon, zCDP, Rényi, KL and what an attacker can gain."""
    from gratis.accounting import (
        account,
        epsilon_upper_bound,
        gdp_delta_upper_bound,
        gdp_kl,
        gdp_to_renyi,
        gdp_to_zcdp,
        group_privacy,
    )
    from gratis.records.guarantees import GDPGuarantee

    guarantee = account([_event(file) for file in files])
    if isinstance(guarantee, GDPGuarantee):
        guarantee = group_privacy(guarantee, rows_per_person=rows_per_person)
    elif rows_per_person != 1:
        raise GratisError("the privacy of groups is computed for Gaussian releases only; these are subsampled")
    epsilon = epsilon_upper_bound(guarantee, delta=delta)
    found: dict[str, object] = {"epsilon": epsilon, "delta": delta, "neighbouring": guarantee.neighbouring}
    text = f"together ({epsilon:.6g}, {delta:g})-DP under {guarantee.neighbouring}"
    if isinstance(guarantee, GDPGuarantee):
        mu, kl, rho = guarantee.mu, gdp_kl(mu=guarantee.mu), gdp_to_zcdp(guarantee).rho
        advantage = gdp_delta_upper_bound(mu=mu, epsilon=0.0)  # the largest true minus false positive rate of any test
        found |= {"mu": mu, "zcdp_rho": rho, "kl": kl, "advantage": advantage}
        found["renyi"] = {str(order): gdp_to_renyi(guarantee, order=order).epsilon for order in _ORDERS}
        text += (
            f", {mu:.6g}-GDP, {rho:.6g}-zCDP, KL at most {kl:.4g}: nobody tells whether a person was there with an "
            f"advantage above {advantage:.3g}"
        )
    emit(found | {"rows_per_person": rows_per_person, "files": len(files)}, as_json=as_json, text=text)


def _event(file: Path) -> Event:
    """Return the event of a certificate, a plan file or a model file."""
    from gratis.records.certificates import Certificate
    from gratis.records.events import event_from_json
    from gratis.records.strict_json import read_json

    if zipfile.is_zipfile(file):
        from gratis.estimators.model_file import load_model

        certificate: Certificate = load_model(file).estimator.certificate_
        return certificate.event
    data = read_json(file, "the file")
    if not isinstance(data, dict) or "event" not in data:
        raise GratisError(f"{str(file)!r} is no certificate, plan or model file")
    return event_from_json(data["event"])


@app.command()
def ladder(
    epsilon: float = typer.Option(1.0, help="Epsilon of the whole."),
    delta: float = typer.Option(1e-5, help="Delta of the whole."),
    steps: str = typer.Option("1,10,100,1000,10000,100000", help="Numbers of releases, separated by commas."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Noise that each composition theorem needs for the same (epsilon, delta)."""
    from gratis.accounting import noise_for_composition

    try:
        counts = [check_count("steps", int(part)) for part in steps.split(",")]
    except ValueError as error:
        if isinstance(error, GratisError):
            raise
        raise GratisError(f"steps must be whole numbers separated by commas, got {steps!r}") from None
    rows = noise_for_composition(epsilon=epsilon, delta=delta, steps=counts)
    rules = list(dict.fromkeys(row.rule for row in rows))
    found = {(row.steps, row.rule): row.noise_multiplier for row in rows}
    text = table(
        ["releases", *rules, "naive/exact"],
        [
            [
                str(t),
                *(f"{found[t, rule]:.5g}" for rule in rules),
                f"{found[t, 'naive'] / found[t, 'exact']:.3g}",
            ]
            for t in dict.fromkeys(counts)
        ],
    )
    emit(
        {"epsilon": epsilon, "delta": delta, "rows": [row._asdict() for row in rows]},
        as_json=as_json,
        text=f"noise std over the sensitivity of one release, for ({epsilon:g}, {delta:g})-DP in all\n{text}",
    )
