"""`gratis papers`: the figures of the papers, run here, with their claims checked."""

from __future__ import annotations

from pathlib import Path

import typer

from gratis.cli.output import JSON_OPTION, emit, table

__all__ = ["app"]

app = typer.Typer(help="The figures of the papers, run on this machine.", no_args_is_help=True)


@app.command("list")
def list_figures(as_json: bool = JSON_OPTION) -> None:
    """List every figure with one line."""
    from gratis.papers.registry import FIGURES

    found = {name: figure.description for name, figure in sorted(FIGURES.items())}
    emit({"figures": found}, as_json=as_json, text=table(["id", "figure"], list(map(list, found.items()))))


@app.command()
def run(
    figure: str = typer.Argument(..., help="An id of `gratis papers list`."),
    scale: str = typer.Option("smoke", help="smoke (seconds) or full (the paper's settings, or what it says)."),
    seed: int = typer.Option(0, help="Public seed of the simulation."),
    output: Path = typer.Option(Path("gratis-papers"), help="Folder for the table (JSON) and the picture (PNG)."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Compute one figure, save table and picture, and say which of its claims hold."""
    from rich.console import Console

    from gratis.papers.registry import run_figure

    with Console(stderr=True, quiet=as_json).status(f"running {figure} at scale {scale}"):
        result = run_figure(figure, scale, seed=seed)
        saved, picture = result.save(output, figure)
    claims = [claim.to_json() for claim in result.claims]
    rows = [["holds" if c["holds"] else "DOES NOT HOLD", f"{c['value']:.4g}", c["claim"]] for c in claims]
    emit(
        {"figure": figure, "scale": scale, "claims": claims, "table": str(saved), "picture": str(picture)},
        as_json=as_json,
        text="\n".join([table(["", "value", "claim"], rows), *result.notes, f"table {saved}, picture {picture}"]),
    )
