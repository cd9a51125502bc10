"""`gratis papers`: the figures of the papers, run here, with their claims checked, and a page of them all."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import typer

from gratis.cli.output import JSON_OPTION, emit, table
from gratis.records.errors import GratisError

__all__ = ["app"]

_FOLDER = Path("gratis-papers")  # of `run` and of `gallery`
_SMOKE = "A smoke run settles nothing: it shows that the programs work; claims are decided by --scale full."

app = typer.Typer(help="The figures of the papers, run on this machine.", no_args_is_help=True)


@app.command("list")
def list_figures(as_json: bool = JSON_OPTION) -> None:
    """List every figure with one line."""
    from gratis_papers.registry import FIGURES

    found = {name: figure.description for name, figure in sorted(FIGURES.items())}
    emit({"figures": found}, as_json=as_json, text=table(["id", "figure"], list(map(list, found.items()))))


@app.command()
def run(
    figure: str = typer.Argument(..., help="An id of `gratis papers list`, or all."),
    scale: str = typer.Option(
        "smoke", help="smoke (seconds), full (the paper's settings, or what it says), hour (s4-fig2, s4-app)."
    ),
    seed: int = typer.Option(0, help="Public seed of the simulation."),
    output: Path = typer.Option(_FOLDER, help="Folder for the table (JSON) and the picture (PNG)."),
    backend: str = typer.Option("loky", help="Where sweeps run: loky (this machine), dask or ray."),
    jobs: int = typer.Option(1, help="Settings of a sweep computed at once; results do not depend on it."),
    resume: bool = typer.Option(True, help="Take finished settings of an interrupted sweep from the cache."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Compute one figure or all, save tables and pictures, and say which claims hold.

    A claim that does not hold is a finding, not an error: the exit code stays 0. It is 2 if a program could not run.
    """
    from gratis_papers.registry import FIGURES
    from gratis_papers.sweeps import Execution

    execution = Execution(backend=backend, jobs=jobs, folder=_cache() if resume else None)
    if figure != "all":
        found = _run_one(figure, scale, seed, output, execution, quiet=as_json)
        rows = [["holds" if c["holds"] else "DOES NOT HOLD", f"{c['value']:.4g}", c["claim"]] for c in found["claims"]]
        saved = f"table {found['table']}, picture {found['picture']}"
        lines = [table(["", "value", "claim"], rows), *found["notes"], *([_SMOKE] if scale == "smoke" else []), saved]
        emit(found, as_json=as_json, text="\n".join(lines))
        return
    results: list[dict[str, Any]] = []
    for name in sorted(FIGURES):
        try:
            found = _run_one(name, scale, seed, output, execution, quiet=as_json)
            held = sum(claim["holds"] for claim in found["claims"])
            failed = [claim["claim"] for claim in found["claims"] if not claim["holds"]]
            line = f"{name:<14} {held:>2} of {len(found['claims']):>2} claims hold  {found['seconds']:>7.1f} s"
            line += "".join(f"\n{'':<14} does not hold: {claim}" for claim in failed)
        except (GratisError, ImportError) as error:
            found = {"figure": name, "scale": scale, "claims": [], "error": str(error)}
            line = f"{name:<14} could not run: {error}"
        results.append(found)
        if not as_json:
            typer.echo(line)
    claims = [claim for found in results for claim in found["claims"]]
    held, broken = sum(claim["holds"] for claim in claims), [found["figure"] for found in results if "error" in found]
    summary = {"figures": len(results), "claims": len(claims), "hold": held, "could_not_run": broken}
    words = f"{len(results) - len(broken)} figures, {held} of {len(claims)} claims hold; page: gratis papers gallery"
    text = f"{words} --folder {output}" + (f"\n{_SMOKE}" if scale == "smoke" else "")
    emit({"results": results, "summary": summary}, as_json=as_json, text=text)
    if broken:
        raise GratisError(f"{len(broken)} of {len(results)} figures could not run: {', '.join(broken)}")


def _run_one(name: str, scale: str, seed: int, output: Path, execution: Any, *, quiet: bool) -> dict[str, Any]:
    from contextlib import nullcontext
    from dataclasses import replace

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from gratis_papers.registry import run_figure
    from gratis_papers.sweeps import executing

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    # Not a disabled one: rich 13 ends those with an empty line too.
    shown = None if quiet or not console.is_terminal else Progress(*columns, console=console, transient=True)
    with shown or nullcontext():
        if shown:
            shown.add_task(f"{name} ({scale})", total=None)
        with executing(replace(execution, progress=shown)):
            result = run_figure(name, scale, seed=seed)
        saved, picture = result.save(output, name)
    return {
        "figure": name,
        "scale": scale,
        "seconds": result.provenance["seconds"],
        "claims": [claim.to_json() for claim in result.claims],
        "notes": list(result.notes),
        "table": str(saved),
        "picture": str(picture),
    }


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gratis" / "sweeps"


@app.command()
def claims(
    folders: list[Path] = typer.Argument(None, help="Folders of `gratis papers run`, for instance one a seed."),
    output: Path | None = typer.Option(None, help="Also write the table as JSON: figure, claim, seeds, cause."),
    as_json: bool = JSON_OPTION,
) -> None:
    """List every claim: for how many seeds it held, and why not (the paper, the scale, or us); count them by cause."""
    from gratis_papers.claim_table import claim_rows, read_figures, seeds_that_hold

    rows = claim_rows(figure for folder in folders or [_FOLDER] for figure in read_figures(folder))
    if not rows:
        raise GratisError("no figures there; make some with `gratis papers run all`")
    found = [
        {
            "figure": row.figure,
            "claim": row.claim,
            "holds": {str(seed): held for seed, held in sorted(row.holds.items())},
            "cause": None if all(row.holds.values()) else row.finding.cause or "not explained",
        }
        for row in rows
    ]
    causes = Counter(row["cause"] or "hold" for row in found)
    if output is not None:
        output.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = []
    for row in rows:
        why = "" if all(row.holds.values()) else f"{row.finding.cause or 'not explained'}: {row.finding.because}"
        lines.append([row.figure, seeds_that_hold(row), row.claim, why])
    failed = ", ".join(f"{cause} {count}" for cause, count in causes.most_common() if cause != "hold")
    words = f"{len(found)} claims: {causes['hold']} hold for every seed; not for all: {failed or 'none'}"
    text = f"{table(['figure', 'seeds', 'claim', 'why not'], lines)}\n\n{words}"
    emit({"claims": found, "summary": dict(causes)}, as_json=as_json, text=text)


@app.command()
def redraw(
    folder: Path = typer.Argument(_FOLDER, help="Folder with the tables of `gratis papers run`."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Draw the pictures in a folder again from their tables, and decide claims again, without running anything."""
    from gratis_papers.claim_table import read_figures
    from gratis_papers.registry import redraw as redraw_one

    names = [str(content["figure"]) for content in read_figures(folder)]
    if not names:
        raise GratisError(f"no figures in {folder}; make some with `gratis papers run all --output {folder}`")
    done = {name: redraw_one(folder / f"{name}.json") for name in names}
    left = [name for name, drawn in done.items() if not drawn]
    words = f"{len(names) - len(left)} of {len(names)} pictures drawn again"
    emit(
        {"redrawn": [name for name in names if done[name]], "need_a_run": left},
        as_json=as_json,
        text=words + (f"; these need a run: {', '.join(left)}" if left else ""),
    )


@app.command()
def gallery(
    folder: Path = typer.Option(_FOLDER, help="Folder with the tables and pictures of `gratis papers run`."),
    output: Path = typer.Option(Path("gallery.html"), help="The page to write."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Build one self-contained page of all figures in a folder: the paper beside what was measured."""
    from gratis_papers.claim_table import read_figures
    from gratis_papers.gallery import GalleryFigure, render_gallery
    from gratis_papers.registry import FIGURES
    from gratis_papers.statements import PAPERS, STATEMENTS

    found = []
    for content in read_figures(folder):
        name = str(content["figure"])
        known = FIGURES.get(name)
        found.append(
            GalleryFigure(
                name=name,
                title=known.description if known else "",
                paper=PAPERS.get(name.split("-")[0], ""),
                statement=STATEMENTS.get(name, ""),
                table=content,
                picture=(folder / f"{name}.png").read_bytes(),
            )
        )
    if not found:
        raise GratisError(f"no figures in {folder}; make some with `gratis papers run all --output {folder}`")
    page = render_gallery(found)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
        partial.write_text(page, encoding="utf-8")
        partial.replace(output)
    except OSError as error:
        raise GratisError(f"cannot write {output} ({error.strerror}); choose another --output") from None
    claims = [claim for figure in found for claim in figure.table.get("claims", ())]
    held = sum(bool(claim["holds"]) for claim in claims)
    emit(
        {"figures": [figure.name for figure in found], "claims": len(claims), "hold": held, "page": str(output)},
        as_json=as_json,
        text=f"{len(found)} figures, {held} of {len(claims)} claims hold; open {output}",
    )
