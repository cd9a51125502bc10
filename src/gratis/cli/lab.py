"""`gratis lab`: how many parameters interpolate, interpolate robustly, give the data away; training under KL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from gratis.cli.output import JSON_OPTION, emit, numbers, refuse_overwriting, showing, table
from gratis.cli.reconstruct import reconstruct
from gratis.records.errors import GratisError

__all__ = ["app"]

app = typer.Typer(
    help="The laboratory: interpolation, robustness, reconstruction, training under KL.", no_args_is_help=True
)
app.command()(reconstruct)

_SEED = typer.Option(0, help="Seed of data and features; everything here is synthetic or public.")
_N = typer.Option(100, "--n", help="Training points.")
_D = typer.Option(20, "--d", help="Input dimension.")
_ROWS = typer.Option(None, help="Your own rows (.npy, one row a record) in place of synthetic points; with --public.")
_PUBLIC = typer.Option(False, help="The rows may be looked at: what is printed of them has no privacy.")


@app.command()
def interpolate(
    n: int = _N,
    d: int = _D,
    depth: int = typer.Option(2, help="Layers of weights, at least 2."),
    activation: str = typer.Option("tanh", help="relu, tanh, softplus, square or cosine."),
    ratios: str = typer.Option("0.5,0.9,1.5,3,6,12,25", help="p/n, separated by commas."),
    rows: Path | None = _ROWS,
    public: bool = _PUBLIC,
    seed: int = _SEED,
    as_json: bool = JSON_OPTION,
) -> None:
    """Smallest eigenvalue of the tangent kernel against the number of parameters, and descent against prediction."""
    import numpy as np

    from gratis.records.checks import check_count
    from gratis_papers.s1_interpolation import eigenvalues_by_width, linear_regime

    points = _public_rows(rows, public)
    if points is not None:
        n, d = points.shape
    n, d = check_count("n", n, minimum=2), check_count("d", d)
    rng = np.random.default_rng(check_count("seed", seed, minimum=0))
    wanted = numbers("ratios", ratios)
    with showing("kernels of networks", quiet=as_json):
        found = eigenvalues_by_width(
            n, d, check_count("depth", depth, minimum=2), wanted, 3, activation, rng, points=points
        )
        descent = linear_regime(min(n, 50), d, 2000, 200, activation, rng, points=points)
    measured, predicted = descent["measured"][-1], descent["predicted"][-1]
    positive = [row["p"] for row in found if row["least"] > 1e-10]
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
        [[str(r["depth"]), str(r["width"]), str(r["p"]), f"{r['ratio']:.2f}", f"{r['smallest']:.3g}"] for r in found],
    )
    data = {"rows": found, "verdict": words, "measured_loss": measured, "predicted_loss": predicted}
    emit(data, as_json=as_json, text=f"{words}\n{trained}\n\n{shown}")


@app.command()
def robustness(
    n: int = _N,
    d: int = typer.Option(200, "--d", help="Input dimension."),
    features: str = typer.Option("400,1000,4000", help="Numbers of random features, separated by commas."),
    neurons: str = typer.Option("12,25,50,100,200", help="Numbers of neurons k (p = 2kd), separated by commas."),
    rows: Path | None = _ROWS,
    labels: Path | None = typer.Option(None, help="Their targets (.npy), with --rows."),
    public: bool = _PUBLIC,
    seed: int = _SEED,
    as_json: bool = JSON_OPTION,
) -> None:
    """Sensitivity of minimum-norm interpolants against p, beside the law of robustness."""
    import numpy as np

    from gratis.records.checks import check_count
    from gratis_papers.s1_robustness import sensitivity_rows, sphere_problem

    rng = np.random.default_rng(check_count("seed", seed, minimum=0))
    points = _public_rows(rows, public)
    if (points is None) != (labels is None):
        raise GratisError("--rows and --labels belong together")
    if points is not None and labels is not None:
        problem, source = _held_out(points, _numeric_array("--labels", labels), rng), "own rows"
    else:
        n, d = check_count("n", n, minimum=2), check_count("d", d, minimum=2)
        problem, source = sphere_problem(n, d, 100, rng), "sphere"
    n, d = problem[0].shape
    with showing("interpolants", quiet=as_json):
        found = sensitivity_rows(
            source,
            problem,
            features=[check_count("features", value) for value in numbers("features", features)],
            neurons=[check_count("neurons", value) for value in numbers("neurons", neurons)],
            rng=rng,
        )
    words = (
        "S(x) = |x||grad f(x)| of order 1 is robust; random features do not get there by adding parameters, tangent "
        "features with an even activation (cosine) do, about as fast as the law of robustness allows"
    )
    shown = table(
        ["features", "activation", "p", "sensitivity", "sqrt(nd/p)"],
        [[r["model"], r["activation"], str(r["p"]), f"{r['sensitivity']:.3g}", f"{r['law']:.3g}"] for r in found],
    )
    emit({"rows": found, "n": n, "d": d}, as_json=as_json, text=f"{words}\n\n{shown}")


@app.command("noisy-gd")
def noisy_gd(
    kl_budget: float = typer.Option(..., help="Largest KL divergence between runs on neighbours (not epsilon of DP)."),
    rows: Path | None = typer.Option(None, help="Your rows (.npy, one row a record); synthetic points if left out."),
    labels: Path | None = typer.Option(None, help="Their classes 0, 1, … (.npy); needs --rows."),
    classes: int = typer.Option(2, help="Outputs: 1 is one logistic output, 2 and more softmax."),
    width: int = typer.Option(64, help="Width of the hidden layers."),
    depth: int = typer.Option(2, help="Weight matrices."),
    initialization: str = typer.Option("lecun", help="lecun, xavier, he or ntk."),
    steps: int | None = typer.Option(None, help="Steps; T x B / 2 if left out. The bound depends on T alone."),
    neighbouring: str = typer.Option("replace-one", help="replace-one or zero-out."),
    n: int = typer.Option(5000, "--n", help="Synthetic points, when no rows are given."),
    d: int = _D,
    output: Path | None = typer.Option(None, help="Write the weights into this .npz file."),
    seed: int = typer.Option(0, help="Seed of the synthetic points; noise and initial weights are always fresh."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Train with the T and sigma of `gratis plan network`: noisy descent under a KL bound, not (epsilon, delta)."""
    import numpy as np

    from gratis.mechanisms.noise import NoiseSource
    from gratis.records.checks import check_count
    from gratis.records.neighbouring import Neighbouring
    from gratis_papers.kl_training import plan_under_kl, train_under_kl

    if (rows is None) != (labels is None):
        raise GratisError("--rows and --labels belong together")
    synthetic = rows is None
    if rows is not None and labels is not None:
        X, y, source = _numeric_array("--rows", rows), _numeric_array("--labels", labels), f"rows of {rows.name}"
        refuse_overwriting(output, rows, labels)
    else:
        n, d = check_count("n", n, minimum=2), check_count("d", d)
        rng = np.random.default_rng(check_count("seed", seed, minimum=0))
        X = rng.standard_normal((n, d))
        y, source = (X[:, 0] > 0).astype(np.int64), f"{n} synthetic points with the class sign(x_1)"
    if X.ndim != 2 or not X.size:
        raise GratisError("--rows must hold one row a record")
    if y.shape != X.shape[:1]:
        raise GratisError("--labels must hold one class for each row")
    plan = plan_under_kl(
        len(X), X.shape[1], classes, width=width, depth=depth, kl_budget=kl_budget, scheme=initialization, steps=steps,
        neighbouring=Neighbouring.parse(neighbouring),
    )  # fmt: skip
    if output is not None:
        _refuse_unwritable(output)
    with showing(f"{plan.steps} steps of noisy descent", quiet=as_json):
        trained = train_under_kl(X, y, plan, noise=NoiseSource.secure())
    if output is not None:
        stored: dict[str, Any] = dict(trained.weights())
        with output.open("wb") as file:
            np.savez(file, **stored)
    ran = (
        f"{source}; {plan.scheme}, width {width}, depth {depth}: T = {plan.time:.4g} in {plan.steps} steps, "
        f"sigma = {plan.noise_std:.4g}"
    )
    lines = [ran, plan.caption]
    data: dict[str, Any] = {
        "plan": {"scheme": plan.scheme, "widths": list(plan.widths), "time": plan.time, "steps": plan.steps,
                 "noise_std": plan.noise_std, "kl": plan.kl, "neighbouring": str(plan.neighbouring)},
        "caption": plan.caption, "certified": False,
    }  # fmt: skip
    if synthetic:  # of the user's own rows it would be computed without noise
        data["training_accuracy"] = float(np.mean(trained.predict(X) == y))
        lines.append(f"accuracy on the synthetic points themselves {data['training_accuracy']:.3f}")
    emit(data, as_json=as_json, text="\n".join(lines))


def _public_rows(path: Path | None, public: bool) -> Any:
    """Read rows that may be looked at, on the sphere of radius √d that the theory is about; None without a file."""
    import numpy as np

    if path is None:
        return None
    if not public:
        raise GratisError("numbers of your own rows would be printed without privacy: add --public if they are public")
    found = np.asarray(_numeric_array("--rows", path), dtype=np.float64)
    if found.ndim != 2 or len(found) < 2 or not np.isfinite(found).all():
        raise GratisError("--rows must hold at least two rows of finite numbers")
    found = found - found.mean(axis=0)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    if not lengths.all():
        raise GratisError("a row equals the mean of all: it cannot be put on a sphere")
    return found * (found.shape[1] ** 0.5 / lengths)


def _held_out(points: Any, targets: Any, rng: Any) -> Any:
    """A fifth of the rows, at most 100, as test points; targets on the scale of ±1."""
    import numpy as np

    if targets.shape != points.shape[:1] or not np.isfinite(targets).all():
        raise GratisError("--labels must hold one finite number for each row")
    order = rng.permutation(len(points))
    test = max(1, min(100, len(points) // 5))
    scaled = targets - targets.mean()
    scaled = scaled / (np.sqrt(np.mean(scaled**2)) or 1.0)
    return points[order[test:]], scaled[order[test:]], points[order[:test]]


def _numeric_array(option: str, path: Path) -> Any:
    """Read an array of numbers; what cannot be one is refused without a word of what it holds."""
    from zipfile import BadZipFile

    import numpy as np

    found = None
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile):
        pass  # refused below, outside of the handler: its message may quote the file
    if not isinstance(found, np.ndarray):
        raise GratisError(f"{path} is not an array file (.npy)")
    if found.dtype.kind not in "biuf":
        raise GratisError(f"{option} must hold real numbers, got the type {found.dtype}")
    return found


def _refuse_unwritable(output: Path) -> None:
    """Find out before training that weights can be written; an older file stays as it is until then."""
    there, failed = output.exists(), False
    try:
        with output.open("ab"):
            pass
        if not there:
            output.unlink()
    except OSError:
        failed = True
    if failed:
        raise GratisError(f"{str(output)!r} cannot be written: choose another --output; nothing was trained")
