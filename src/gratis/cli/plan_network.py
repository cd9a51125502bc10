"""`gratis plan network`: which initialization and depth leak least under noisy training, and what that costs."""

from __future__ import annotations

import typer

from gratis.cli.output import JSON_OPTION, emit, table

__all__ = ["network"]

_DEEPEST = 1000  # beyond it constants of the narrowest initializations fall below what a float holds


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
