"""`gratis certificate verify`: recompute a certificate from its events, and see whose certificate it is."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import typer

from gratis.cli.output import JSON_OPTION, emit
from gratis.records.errors import CertificateError

__all__ = ["app"]

app = typer.Typer(help="Certificates of what was released.", no_args_is_help=True)

_INSECURE = "the noise came from a user's seed: NO protection"


@app.callback()
def _group() -> None:
    """Keep `verify` a sub-command while it is the only one."""


@app.command()
def verify(
    file: Path = typer.Argument(..., help="A certificate written by Gratis, or a model file with one inside."),
    model: Path | None = typer.Option(
        None, help="A model file, or weights that torch.save wrote: is the certificate that of this model?"
    ),
    allow_insecure: bool = typer.Option(False, help="Accept noise from a user's seed, which protects nothing."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Recompute what FILE states from its events.

    Exit code 2 if anything does not follow or the model is another one, 3 if it follows but its noise protects nothing.
    """
    from gratis.accounting import verify_certificate
    from gratis.records.assumptions import assumption_text

    certificate, binding = _read(file, model)
    problems = verify_certificate(certificate)
    if problems:
        if as_json:
            emit({"valid": False, "problems": problems}, as_json=True, text="")
        raise CertificateError(f"the certificate does not follow from its events: {'; '.join(problems)}")
    secure = certificate.randomness["secure"]
    accepted = secure or allow_insecure
    answer = {
        "valid": accepted,
        "problems": [] if accepted else [_INSECURE],
        "neighbouring": str(certificate.neighbouring),
        "selection": str(certificate.selection),
        "secure_randomness": secure,
        "assumptions": {name: assumption_text(name) for name in certificate.assumptions},
        "released": certificate.released,
        "model": binding,
        **{k: certificate.guarantee[k] for k in ("mu", "epsilon", "delta") if k in certificate.guarantee},
    }
    words = (
        f"{_words(certificate.guarantee)} under {certificate.neighbouring}, selection of settings: "
        f"{certificate.selection}, {binding}."
    )
    if accepted:
        warning = "" if secure else f" But {_INSECURE}."
        emit(answer, as_json=as_json, text=f"valid: {words}{warning}")
        return
    if as_json:
        emit(answer, as_json=True, text="")
    typer.echo(f"gratis: the certificate follows from its events, but {_INSECURE} (see --allow-insecure)", err=True)
    raise typer.Exit(3)


def _read(file: Path, model: Path | None) -> tuple[Any, str]:
    """Return the certificate, and what is known about the model that it belongs to."""
    from gratis.estimators.model_file import load_model
    from gratis.records.certificates import Certificate

    inside = file.is_file() and zipfile.is_zipfile(file)
    certificate = load_model(file).estimator.certificate_ if inside else Certificate.read(file)
    if model is not None and _is_torch(model):
        if certificate.released is None or certificate.released not in _digests(model):
            raise CertificateError(f"the certificate is not that of the weights {str(model)!r}")
    elif model is not None:
        other = load_model(model).estimator.certificate_
        if (certificate.event, certificate.released) != (other.event, other.released):
            raise CertificateError(f"the certificate is not that of the model {str(model)!r}")
    if certificate.released is None:
        return certificate, "not bound to a model"
    return certificate, f"bound to {'this' if inside or model is not None else 'a'} model"


def _is_torch(path: Path) -> bool:
    """Whether torch.save wrote the file: a zip archive that holds a pickle."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/data.pkl") for name in archive.namelist())


def _digests(path: Path) -> list[str]:
    """Digests of the weights in a file, also of those that stand in a checkpoint beside others; no code is run."""
    from gratis.estimators.released_arrays import arrays_digest, module_arrays
    from gratis.records.extras import missing_extra

    try:
        import torch
    except ImportError:
        raise missing_extra("weights that torch.save wrote are read by PyTorch", "nn") from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # of whatever a damaged or hostile file makes it raise
        found = None
    if not isinstance(found, dict):
        raise CertificateError(f"{str(path)!r} holds no state_dict that can be read")
    return [arrays_digest(module_arrays(one)) for one in (found, *found.values()) if isinstance(one, dict)]


def _words(guarantee: dict[str, Any]) -> str:
    parts = []
    if "mu" in guarantee:
        parts.append(f"{float(guarantee['mu']):.6g}-GDP")
    if "epsilon" in guarantee:
        parts.append(f"({float(guarantee['epsilon']):.6g}, {guarantee['delta']:g})-DP")
    return ", ".join(parts)
