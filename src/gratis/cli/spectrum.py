"""`gratis spectrum`: how many directions does a private training use?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from gratis.cli.output import JSON_OPTION, emit, table
from gratis.records.errors import GratisError

__all__ = ["spectrum"]


def spectrum(
    file: Path = typer.Argument(..., help="Gradients: an .npz of SpectrumRecorder.save, or an .npy, one a row."),
    noise_std: float | None = typer.Option(None, help="Noise in every coordinate (loop.noise_std); else the file's."),
    share: float = typer.Option(0.95, help="Part of the gradients' squared length that a subspace should keep."),
    clip_norm: float | None = typer.Option(None, help="For the bound: clip norm of the training."),
    n: int | None = typer.Option(None, "--n", help="For the bound: records."),
    epsilon: float | None = typer.Option(None, help="For the bound: budget."),
    delta: float | None = typer.Option(None, help="For the bound: budget."),
    k: int | None = typer.Option(None, "--k", help="Write so many leading directions to --output."),
    output: Path | None = typer.Option(None, help="An .npy file for Subspace.load."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Say how gradients decay, how many directions stand out of the noise, and whether k of them would be enough.

    Released gradients are noisy: what stands out, and how well its directions are known, follows from the noise.
    """
    from gratis.estimators.gradient_subspace import Subspace, read_gradients
    from gratis.planning.bounds.gradient_spectrum import spectrum_of_gradients
    from gratis.records.checks import check_positive

    if (k is None) != (output is None):
        raise GratisError("--k and --output belong together")
    rows, known = read_gradients(file)
    found = spectrum_of_gradients(rows, noise_std=known if noise_std is None else noise_std)
    if check_positive("share", share) > 1:
        raise GratisError("--share must be at most 1")
    out, enough = found.standing_out(), found.recommended(share)
    ks = [size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500) if size <= out]
    ks = sorted({*ks, *([out] if out else []), *([enough] if enough else [])})
    kept = {size: found.kept(size) for size in ks}
    signal = found.signal_values()
    words = [
        f"{found.recorded} gradients of {found.dimension} parameters, noise {found.noise_std:.3g} a coordinate",
        f"{out} directions stand out of the noise"
        if found.noise_std > 0
        else f"exact gradients: {out} directions, for public rows only",
    ]
    answer: dict[str, Any] = {
        "recorded": found.recorded,
        "dimension": found.dimension,
        "noise_std": found.noise_std,
        "standing_out": out,
        "kept": {str(size): value for size, value in kept.items()},
        "share": share,
        "recommended_k": enough,
    }
    usable = signal[: max(found.recorded // 2, 1)]
    if len(usable) >= 4:
        from gratis.planning.bounds.gradient_spectrum import fit_decay

        fit = fit_decay(usable)
        answer |= {"decay_exponent": fit.exponent, "fit_range": [fit.first, fit.last]}
        words.append(f"they decay like k^-{fit.exponent:.2f} over ranks {fit.first} to {fit.last}")
    lines = ["; ".join(words) + "."]
    if kept:
        shown = [[str(size), f"{signal[size - 1]:.3g}", f"{value:.0%}"] for size, value in kept.items()]
        lines.append(table(["k", "size of direction k", "kept by training in k"], shown))
    if enough is not None:
        lines.append(
            f"The first {enough} keep {kept[enough]:.0%} of the gradients' squared length: fix them (--k {enough} "
            "--output FILE) and train inside. Whether the accuracy follows, only training shows."
        )
    else:
        most = found.kept(out) if out else 0.0
        lines.append(
            f"No subspace of these keeps {share:.0%}: the best keeps {most:.0%}. Train in all dimensions, or record "
            "more steps, less noise, or public rows."
        )
    bound = _bound(signal, found, clip_norm, n, epsilon, delta)
    if bound is not None:
        answer |= bound
        lines.append(f"{bound['words'][0].upper()}{bound['words'][1:]}.")
    if k is not None and output is not None:
        Subspace.of_gradients(rows, k).save(output)
        answer |= {"k": k, "output": str(output)}
        lines.append(f"{k} directions in {output}")
    emit(answer, as_json=as_json, text="\n".join(lines))


def _bound(
    signal: Any, found: Any, clip_norm: float | None, n: int | None, epsilon: float | None, delta: float | None
) -> dict[str, Any] | None:
    """Restricted Lipschitz coefficients of the visited points, and the dimension that S4's bound then pays for."""
    given = (clip_norm, n, epsilon, delta)
    if all(value is None for value in given):
        return None
    if clip_norm is None or n is None or epsilon is None or delta is None:
        raise GratisError("the bound needs --clip-norm, --n, --epsilon and --delta")
    if not len(signal):
        raise GratisError("no direction stands out of the noise: there is no bound to compute")
    import numpy as np

    from gratis.accounting import calibrate_mu
    from gratis.planning.bounds.effective_dimension import effective_dimension
    from gratis.planning.bounds.restricted_lipschitz import LipschitzCoefficients
    from gratis.records.budget import Budget

    # What lies below the noise is at most the noise's edge.
    rest = [] if found.noise_std == 0 else [min(found.noise_edge, float(signal[-1]))]
    coefficients = LipschitzCoefficients.of_gradient_spectrum(
        np.append(signal, rest), clip_norm=clip_norm, dimension=found.dimension
    )
    budget = Budget(epsilon=epsilon, delta=delta)
    answer = effective_dimension(coefficients, distance=1.0, n_records=n, mu=calibrate_mu(budget))
    shown = [size for size in (1, 2, 5, 10, 20, 50, 100) if size < found.dimension]
    return {
        "effective_dimension": answer.bound.k,
        "is_low_dimensional": answer.is_low_dimensional,
        "lipschitz_coefficients": {
            str(size): float(value) for size, value in zip(shown, coefficients.at(np.array(shown)), strict=True)
        },
        "words": answer.words,
    }
