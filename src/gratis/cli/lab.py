"""`gratis lab`: how many parameters interpolate, interpolate robustly, and give the training data away."""

from __future__ import annotations

import typer

from gratis.cli.output import JSON_OPTION, emit, showing, table
from gratis.cli.reconstruct import reconstruct
from gratis.records.errors import GratisError

__all__ = ["app"]

app = typer.Typer(help="The trust laboratory: interpolation, robustness, reconstruction.", no_args_is_help=True)
app.command()(reconstruct)

_SEED = typer.Option(0, help="Seed of data and features; everything here is synthetic or public.")
_N = typer.Option(100, "--n", help="Training points.")
_D = typer.Option(20, "--d", help="Input dimension.")


@app.command()
def interpolate(
    n: int = _N,
    d: int = _D,
    depth: int = typer.Option(2, help="Layers of weights, at least 2."),
    activation: str = typer.Option("tanh", help="relu, tanh, softplus, square or cosine."),
    ratios: str = typer.Option("0.5,0.9,1.5,3,6,12,25", help="p/n, separated by commas."),
    seed: int = _SEED,
    as_json: bool = JSON_OPTION,
) -> None:
    """Smallest eigenvalue of the tangent kernel against the number of parameters, and descent against prediction."""
    import numpy as np

    from gratis.records.checks import check_count
    from gratis_papers.s1_interpolation import eigenvalues_by_width, linear_regime

    n, d = check_count("n", n, minimum=2), check_count("d", d)
    rng = np.random.default_rng(check_count("seed", seed, minimum=0))
    wanted = _numbers("ratios", ratios)
    with showing("kernels of networks", quiet=as_json):
        rows = eigenvalues_by_width(n, d, check_count("depth", depth, minimum=2), wanted, 3, activation, rng)
        descent = linear_regime(min(n, 50), d, 2000, 200, activation, rng)
    measured, predicted = descent["measured"][-1], descent["predicted"][-1]
    positive = [row["p"] for row in rows if row["least"] > 1e-10]
    words = (
        f"the tangent kernel is invertible from p = {min(positive)} on (n = {n}): descent interpolates"
        if positive
        else f"the tangent kernel is singular at every p tried (n = {n}): more parameters are needed"
    )
    trained = (
        f"a network of width 2000 after 200 steps on {min(n, 50)} points: loss {measured:.4g}, "
        f"the linear regime predicts {predicted:.4g}"
    )
    shown = table(
        ["layers", "width", "p", "p/n", "smallest eigenvalue / mean diagonal"],
        [[str(r["depth"]), str(r["width"]), str(r["p"]), f"{r['ratio']:.2f}", f"{r['smallest']:.3g}"] for r in rows],
    )
    data = {"rows": rows, "verdict": words, "measured_loss": measured, "predicted_loss": predicted}
    emit(data, as_json=as_json, text=f"{words}\n{trained}\n\n{shown}")


@app.command()
def robustness(
    n: int = _N,
    d: int = typer.Option(200, "--d", help="Input dimension."),
    features: str = typer.Option("400,1000,4000", help="Numbers of random features, separated by commas."),
    neurons: str = typer.Option("12,25,50,100,200", help="Numbers of neurons k (p = 2kd), separated by commas."),
    seed: int = _SEED,
    as_json: bool = JSON_OPTION,
) -> None:
    """Sensitivity of minimum-norm interpolants against p, beside the law of robustness."""
    import numpy as np

    from gratis.records.checks import check_count
    from gratis_papers.s1_robustness import sensitivity_rows, sphere_problem

    n, d = check_count("n", n, minimum=2), check_count("d", d, minimum=2)
    rng = np.random.default_rng(check_count("seed", seed, minimum=0))
    with showing("interpolants", quiet=as_json):
        rows = sensitivity_rows(
            "sphere",
            sphere_problem(n, d, 100, rng),
            features=[check_count("features", value) for value in _numbers("features", features)],
            neurons=[check_count("neurons", value) for value in _numbers("neurons", neurons)],
            rng=rng,
        )
    words = (
        "S(x) = |x||grad f(x)| of order 1 is robust; random features do not get there by adding parameters, tangent "
        "features with an even activation (cosine) do, about as fast as the law of robustness allows"
    )
    shown = table(
        ["features", "activation", "p", "sensitivity", "sqrt(nd/p)"],
        [[r["model"], r["activation"], str(r["p"]), f"{r['sensitivity']:.3g}", f"{r['law']:.3g}"] for r in rows],
    )
    emit({"rows": rows, "n": n, "d": d}, as_json=as_json, text=f"{words}\n\n{shown}")


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise GratisError(f"{name} must be numbers separated by commas, got {text!r}") from None
