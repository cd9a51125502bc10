"""`gratis certificate verify`: recompute a certificate from its events."""

from __future__ import annotations

import typer

from gratis.cli.output import JSON_OPTION, emit
from gratis.specs.errors import CertificateError

__all__ = ["app"]

app = typer.Typer(help="Certificates of what was released.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `verify` a sub-command while it is the only one."""


@app.command()
def verify(
    file: str = typer.Argument(..., help="A certificate written by Gratis."), as_json: bool = JSON_OPTION
) -> None:
    """Recompute everything in FILE from its events; exit code 2 if anything does not follow."""
    from gratis.accounting import verify_certificate
    from gratis.specs.certificates import Certificate

    certificate = Certificate.read(file)
    problems = verify_certificate(certificate)
    if problems:
        if as_json:
            emit({"valid": False, "problems": problems}, as_json=True, text="")
        raise CertificateError(f"the certificate does not follow from its events: {'; '.join(problems)}")
    insecure = "" if certificate.randomness["secure"] else " Its noise came from a user's seed: NO protection."
    emit(
        {
            "valid": True,
            "problems": [],
            "neighbouring": str(certificate.neighbouring),
            "selection": str(certificate.selection),
            "secure_randomness": certificate.randomness["secure"],
            **{k: certificate.guarantee[k] for k in ("mu", "epsilon", "delta") if k in certificate.guarantee},
        },
        as_json=as_json,
        text=f"valid: {_words(certificate.guarantee)} under {certificate.neighbouring}, "
        f"selection of settings: {certificate.selection}.{insecure}",
    )


def _words(guarantee: dict[str, object]) -> str:
    parts = []
    if "mu" in guarantee:
        parts.append(f"{guarantee['mu']:.6g}-GDP")
    if "epsilon" in guarantee:
        parts.append(f"({guarantee['epsilon']:.6g}, {guarantee['delta']:g})-DP")
    return ", ".join(parts)
