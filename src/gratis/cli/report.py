"""`gratis report`: the page of a saved model, made again from its file."""

from __future__ import annotations

from pathlib import Path

import typer

from gratis.cli.output import JSON_OPTION, emit, refuse_overwriting

__all__ = ["report"]


def report(
    model: Path = typer.Argument(..., help="A model.gratis file."),
    output: Path = typer.Option(Path("report.html"), help="Where to write the page (figures go beside it as PNG)."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Write the report of a model: plan, prediction, proof, audit and certificate on one page without network."""
    from gratis.accounting import verify_certificate
    from gratis.cli.model_report import report_content, write_report
    from gratis.estimators.model_file import load_model

    refuse_overwriting(output, model)
    saved = load_model(model)
    problems = verify_certificate(saved.estimator.certificate_)
    written = write_report(report_content(saved.estimator, saved.context, model), output)
    verdict = "the certificate verifies" if not problems else f"the certificate DOES NOT verify: {problems[0]}"
    emit(
        {"report": str(output), "files": [str(path) for path in written], "certificate_verifies": not problems},
        as_json=as_json,
        text=f"{verdict}; open {output}",
    )
    if problems:
        raise typer.Exit(3)
