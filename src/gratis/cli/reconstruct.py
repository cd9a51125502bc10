"""`gratis lab reconstruct`: get training points back from parameters, trained here or read from a model file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gratis.cli.output import JSON_OPTION, emit, showing
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["reconstruct"]

_DEFAULT_N, _DEFAULT_D = 10, 40
# Activations whose features of x and −x span the same line.
_ODD = ("tanh", "erf")


def reconstruct(
    model: Path | None = typer.Option(None, help="Attack this model file (random features) instead of training one."),
    rows: Path | None = typer.Option(None, help="The true training rows (.npy), to compare with; needs --model."),
    control: bool = typer.Option(False, help="Attack also the same features trained on --rows without privacy."),
    n: int | None = typer.Option(None, "--n", help="Training points; 10, or as the model's certificate says."),
    d: int = typer.Option(_DEFAULT_D, "--d", help="Input dimension."),
    p: int | None = typer.Option(None, "--p", help="Random features; 10·n·d if left out."),
    epsilon: float | None = typer.Option(None, help="Train privately with this epsilon (delta 1e-5, replace-one)."),
    images: bool = typer.Option(False, help="Attack images (CIFAR if GRATIS_DATA has them, else digits)."),
    side: int = typer.Option(8, help="Width and height of the images."),
    picture: Path | None = typer.Option(None, help="Draw originals above reconstructions into this PNG file."),
    steps: int = typer.Option(2000, help="Iterations of one descent."),
    hops: int = typer.Option(10, help="Attempts to leave a local minimum."),
    seed: int = typer.Option(0, help="Seed of the attack, and of data and features where they are made here."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Get the training points of a random-features model back from its parameters."""
    from gratis.records.checks import check_count

    seed = check_count("seed", seed, minimum=0)
    if model is not None:
        if images or epsilon is not None or p is not None:
            raise GratisError("--model brings its own features and budget: leave --images, --epsilon and --p out")
        with showing("searching the training points", quiet=as_json):
            data, words = _attack_file(model, rows, control, n, picture, steps, hops, seed)
    else:
        if rows is not None or control:
            raise GratisError("--rows and --control compare with a model file: give --model as well")
        with showing("searching the training points", quiet=as_json):
            data, words = _attack_here(
                n=check_count("n", _DEFAULT_N if n is None else n), d=check_count("d", d, minimum=2), p=p,
                epsilon=epsilon, side=side if images else None, picture=picture, steps=steps, hops=hops, seed=seed,
            )  # fmt: skip
    emit(data, as_json=as_json, text=words)


def _attack_here(
    *, n: int, d: int, p: int | None, epsilon: float | None, side: int | None, picture: Path | None, steps: int,
    hops: int, seed: int,
) -> tuple[dict[str, object], str]:  # fmt: skip
    """Train on synthetic points or images, then attack."""
    import numpy as np

    from gratis.accounting import gdp_mu_lower_bound
    from gratis.audits.attacked_models import DELTA, interpolant, pictures, private_parameters, sphere_problem
    from gratis.audits.reconstruction import FrozenLayer, chance_error, match_points
    from gratis.audits.reconstruction import reconstruct as attack
    from gratis.models.random_features import RELU, RandomFeatures
    from gratis.records.checks import check_count

    rng = np.random.default_rng(seed)
    if picture is not None and side is None:
        raise GratisError("--picture draws images: give --images as well")
    shape: tuple[int, ...] = ()
    if side is not None:
        if side not in (4, 8, 16, 32):
            raise GratisError(f"--side must be 4, 8, 16 or 32, got {side}")
        X, y, shape, source = pictures(n, side)
    else:
        X, y = sphere_problem(n, d, rng)
        source = "synthetic points"
    n_features = 10 * X.size if p is None else check_count("p", p)
    features = RandomFeatures(n_inputs=X.shape[1], n_features=n_features, activation=RELU, seed=seed)
    if epsilon is None:
        theta = interpolant(features, X, y)
    else:
        theta = private_parameters(features, X, y, gdp_mu_lower_bound(epsilon=epsilon, delta=DELTA), seed)
    found = attack(theta, FrozenLayer.from_features(features), n, rng=rng, steps=steps, hops=hops)
    matched = match_points(X, found.points)
    chance = chance_error(X, rng)
    trained = "without privacy" if epsilon is None else f"with epsilon {epsilon:g}, delta {DELTA:g}, replace-one"
    words = (
        f"{source}, n = {n}, d = {X.shape[1]}, p = {n_features} ({n_features / X.size:.2f}·nd), trained {trained}: "
        + _compared(matched.mean_error, chance)
    )
    if picture is not None:
        _draw(matched.points, shape, picture, X)
    data = {
        "verdict": words, "error": matched.mean_error, "chance": chance, "residual": found.residual,
        "gradients": found.gradients, "n": n, "d": X.shape[1], "p": n_features, "epsilon": epsilon,
        "errors": matched.errors.tolist(),
    }  # fmt: skip
    return data, words


def _attack_file(
    path: Path, rows: Path | None, control: bool, n: int | None, picture: Path | None, steps: int, hops: int, seed: int
) -> tuple[dict[str, object], str]:
    """Attack the released θ of a model file; everything the attack uses is in the file."""
    import numpy as np

    from gratis.audits.attacked_models import interpolant
    from gratis.audits.estimators import certified_records
    from gratis.audits.reconstruction import FrozenLayer, chance_error, match_points
    from gratis.audits.reconstruction import reconstruct as attack
    from gratis.audits.span_projection import SpanResidual
    from gratis.records.checks import check_count

    estimator, features, known = _random_features(path)
    d, p, odd = features.n_inputs, features.n_features, features.activation.name in _ODD
    truth = None if rows is None else _on_the_sphere(estimator.scaler_.transform(_read_rows(rows, d)))
    if control and truth is None:
        raise GratisError("--control trains on the true rows: give --rows as well")
    if n is None:
        n = certified_records(estimator.certificate_) if truth is None else len(truth)
    n = check_count("n", n)
    if truth is not None and len(truth) != n:
        raise GratisError(f"--rows must hold the {n} points that are searched, got {len(truth)}")
    shape = () if picture is None else _image_shape(d)
    rng = np.random.default_rng(seed)
    layer = FrozenLayer.from_features(features)
    found = attack(estimator.coef_, layer, n, rng=rng, steps=steps, hops=hops, known=known)
    random = rng.standard_normal((n, d))
    baseline = SpanResidual(layer, estimator.coef_, known)(_on_the_sphere(random))[0]
    spent = {
        k: estimator.certificate_.guarantee[k] for k in ("epsilon", "delta") if k in estimator.certificate_.guarantee
    }
    words = (
        f"{type(estimator).__name__}, certified {_budget_words(spent)}, n = {n}, d = {d}, p = {p} "
        f"({p / (n * d):.2f}·nd): the points found explain {1 - found.residual:.1%} of the parameters, random points "
        f"{1 - baseline:.1%}"
    )
    data: dict[str, object] = {
        "model": str(path), "certified": spent, "n": n, "d": d, "p": p, "residual": found.residual,
        "residual_of_random_points": baseline, "gradients": found.gradients,
    }  # fmt: skip
    shown = found.points
    if truth is None:
        words += (
            "; they span them, so they are the training points up to length"
            if found.residual < 1e-4 and p > 2 * n * d
            else "; what is left is noise or other records, so the points found are no reconstruction that the "
            "attacker could trust"
        )
    else:
        matched, chance = match_points(truth, shown, up_to_sign=odd), chance_error(truth, rng, up_to_sign=odd)
        words += f"; {_compared(matched.mean_error, chance)}"
        data |= {"error": matched.mean_error, "chance": chance, "errors": matched.errors.tolist()}
        shown = matched.points
    if control and truth is not None:
        labels = rng.choice([-1.0, 1.0], size=n)
        open_theta = interpolant(features, truth, labels)
        leaked = match_points(
            truth, attack(open_theta, layer, n, rng=rng, steps=steps, hops=hops).points, up_to_sign=odd
        )
        words += f"\nthe same features trained on these rows without privacy: mean error {leaked.mean_error:.3g}"
        data["control_error"] = leaked.mean_error
    if picture is not None:
        units = estimator.scaler_.inverse
        _draw(units(shown), shape, picture, None if truth is None else units(truth))
    return data | {"verdict": words}, words


def _random_features(path: Path) -> tuple[Any, Any, Any]:
    """Read the estimator, its map φ(Vx), and the released means that centred features share."""
    import numpy as np

    from gratis.estimators import load_model
    from gratis.models.random_features import RandomFeatures
    from gratis.stages.feature_mean import CentredFeatures

    estimator = load_model(path).estimator
    features, means = getattr(estimator, "feature_map_", None), []
    while isinstance(features, CentredFeatures):
        means.append(features.mean)
        features = features.features
    if not isinstance(features, RandomFeatures):
        raise GratisError(
            f"{str(path)!r} holds a {type(estimator).__name__} without random features; reconstruction attacks "
            "DPRandomFeaturesRegressor and DPRandomFeaturesClassifier with tanh, relu or erf features"
        )
    means = [mean for mean in means if np.any(mean)]
    return estimator, features, np.column_stack(means) if means else None


def _read_rows(path: Path, d: int) -> Array:
    import numpy as np

    try:
        rows = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
    except (ValueError, EOFError, OSError) as error:
        raise GratisError(f"cannot read rows from {str(path)!r}: save them with numpy.save") from error
    if rows.ndim != 2 or rows.shape[1] != d or not np.isfinite(rows).all():
        raise GratisError(f"--rows must be a finite array of rows with {d} columns, got the shape {rows.shape}")
    return rows


def _on_the_sphere(rows: Array) -> Array:
    """Scale rows to ‖x‖ = √d, where the attack searches: for ReLU the length of a point is not in its direction."""
    import numpy as np

    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * (math.sqrt(rows.shape[1]) / np.maximum(norms, 1e-300))


def _image_shape(d: int) -> tuple[int, ...]:
    for channels in (1, 3):
        side = math.isqrt(d // channels)
        if channels * side * side == d:
            return (side, side, channels)
    raise GratisError(f"--picture draws square images, grey or of three colours; rows of {d} columns are none")


def _compared(error: float, chance: float) -> str:
    return (
        "the training points were reconstructed"
        if error < 0.1
        else "the attack found nothing: its error is that of random points"
        if error > 0.8 * chance
        else "the training points were reconstructed in part"
    ) + f" (mean error {error:.3g}, chance {chance:.3g})"


def _budget_words(spent: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in spent.items())


def _draw(found: Any, shape: tuple[int, ...], path: Path, truth: Array | None = None) -> None:
    """Draw reconstructions, below their originals if those are known; a pair shares the grey scale of its first."""
    import numpy as np
    from matplotlib.figure import Figure

    pairs = [(points,) for points in found] if truth is None else list(zip(truth, found, strict=True))
    height = len(pairs[0])
    figure = Figure(figsize=(1.0 * len(pairs), 1.1 * height), layout="constrained")
    panels = figure.subplots(height, len(pairs), squeeze=False)
    for pair, column in zip(pairs, panels.T, strict=True):
        low, high = pair[0].min(), pair[0].max()
        for axis, row in zip(column, pair, strict=True):
            axis.imshow(np.clip((row.reshape(shape) - low) / (high - low), 0, 1).squeeze(), cmap="gray")
            axis.set_axis_off()
    figure.savefig(path, dpi=120)
