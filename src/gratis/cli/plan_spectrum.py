"""`gratis plan spectrum`: for how many dimensions does private descent pay?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gratis.cli.output import JSON_OPTION, emit, table
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["spectrum"]


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
    from gratis.planning.bounds.restricted_lipschitz import LipschitzCoefficients, power_law_rate, rank_rate
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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    found.draw(figure)  # type: ignore[attr-defined]
    figure.savefig(path, dpi=120)
