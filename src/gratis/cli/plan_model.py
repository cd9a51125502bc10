"""`gratis plan MODEL`: exactly the plan that `gratis fit` and the estimator run for these sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gratis.cli.output import JSON_OPTION, emit, numbers, showing, table
from gratis.records.errors import GratisError

if TYPE_CHECKING:
    from gratis.records.budget import Budget
    from gratis.records.facts import Facts

__all__ = ["MODELS", "descent_options", "plan_command"]

MODELS = {
    "linear": "Linear regression.",
    "logistic": "Logistic regression, two or more classes.",
    "additive": "Additive model with pairs, regression or classification.",
    "random-features": "Random features, regression or classification.",
    "mlp": "A fully connected network.",
}


def descent_options(**given: Any) -> dict[str, Any]:
    """Turn options of the command line into the estimator's `descent`, if any is given."""
    from gratis.records.settings import Descent

    chosen = {name: value for name, value in given.items() if value is not None}
    return {"descent": Descent(**chosen)} if chosen else {}


def plan_command(model: str) -> Callable[..., None]:
    """Return the command of one model."""

    def command(
        n: int = typer.Option(..., "--n", help="Rows (public)."),
        d: int = typer.Option(..., "--d", help="Columns after encoding."),
        classes: int | None = typer.Option(None, help="Number of classes; none for regression."),
        epsilon: float = typer.Option(..., help="Budget."),
        delta: float = typer.Option(..., help="Budget."),
        neighbouring: str = typer.Option("replace-one", help="replace-one or zero-out."),
        preprocessing: str = typer.Option("private", help="private, or none: columns and target are on a scale of 1."),
        algorithm: str | None = typer.Option(None, help="For linear and logistic: full-batch or one-pass."),
        schedule: str | None = typer.Option(None, help="For one pass: free, poly:ALPHA, harmonic or free-clip."),
        features: str | None = typer.Option(None, help="For random features: tanh, relu, erf or scattering."),
        n_features: int | None = typer.Option(None, "--n-features", "--p", help="For random features: how many."),
        width: int | None = typer.Option(None, help="For mlp: hidden units a layer."),
        depth: int | None = typer.Option(None, help="For mlp: hidden layers."),
        init: str | None = typer.Option(None, help="For mlp: he, lecun, xavier or ntk."),
        steps: int | None = typer.Option(None, help="T; planned if left out."),
        clip_norm: float | None = typer.Option(None, help="C; planned if left out."),
        learning_rate: str | None = typer.Option(
            None, help="Step size, or one for each step, separated by commas; planned if left out."
        ),
        average: bool | None = typer.Option(None, help="Return the mean of the last half of the iterates."),
        noise: str | None = typer.Option(None, help="exact, or paper (S0's Proposition 2.2)."),
        engine: str | None = typer.Option(None, help="For random features: primal or dual."),
        inference: bool = typer.Option(
            False, "--inference", help="For linear and logistic: intervals of coefficients."
        ),
        target_width: float | None = typer.Option(
            None, help="For linear with --inference: which rows or epsilon give intervals so many times OLS' width."
        ),
        output: Path | None = typer.Option(None, help="Write the plan to this file, for `gratis fit --plan`."),
        as_json: bool = JSON_OPTION,
    ) -> None:
        from gratis.accounting import describe_guarantee, leaf_mu
        from gratis.estimators.fit_plan import plan

        given = {
            "preprocessing": preprocessing,
            "algorithm": algorithm,
            "schedule": schedule,
            "features": features,
            "n_features": n_features,
            "width": width,
            "depth": depth,
            "init": init,
        }
        choices: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if model != "mlp" and {"width", "depth", "init"} & set(choices):
            raise GratisError("--width, --depth and --init belong to `gratis plan mlp`")
        if inference:
            if model not in ("linear", "logistic"):
                raise GratisError("--inference belongs to linear and logistic")
            choices["inference"] = True
        if target_width is not None and not (inference and model == "linear"):
            raise GratisError("--target-width belongs to `gratis plan linear --inference`")
        if model == "mlp" and steps is not None:
            choices["steps"], steps = steps, None
        choices |= descent_options(
            steps=steps,
            clip_norm=clip_norm,
            learning_rate=_rates(learning_rate),
            average=average,
            noise=noise,
            engine=engine,
        )
        with showing("planning from public facts", quiet=as_json):
            made = plan(
                model, rows=n, columns=d, classes=classes, epsilon=epsilon, delta=delta, neighbouring=neighbouring,
                **choices,
            )  # fmt: skip
        if output is not None:
            made.write(output)
        needed = None if target_width is None else _needed(made.facts, made.budget, target_width)
        leaves = made.event.leaves()
        mus = [leaf_mu(leaf) for leaf in leaves]
        total = sum(mu * mu for mu in mus)
        releases = [
            [leaf.label or leaf.kind, f"{mu:.4g}", f"{mu * mu / total:.1%}"]
            for leaf, mu in zip(leaves, mus, strict=True)
        ]
        settings = [
            [name.replace("_", " "), _shown(value)] for name, value in made.settings.to_json().items() if name != "kind"
        ]
        lines = [
            *made.words(),
            *([needed["words"]] if needed else []),
            "",
            table(["setting", "planned"], settings),
            "",
            table(["release", "mu", "share"], releases),
            "",
            "Assumed: " + "; ".join(made.prediction.assumptions) + ".",
        ]
        if output is not None:
            lines.append(f"Written to {output}: gratis fit FILE --target COLUMN --plan {output}")
        guarantee = describe_guarantee(made.event, made.budget) | {"neighbouring": neighbouring}
        data = made.to_json() | {"guarantee": guarantee} | ({"target_width": needed} if needed else {})
        emit(data, as_json=as_json, text="\n".join(lines))

    command.__doc__ = f"{MODELS[model]} The plan that `gratis fit --model {model}` runs for these sizes."
    return command


def _needed(facts: Facts, budget: Budget, factor: float) -> dict[str, Any]:
    """Rows, or ε, from which intervals are predicted to be so wide."""
    from gratis.recipes.linear_inference import needed_for_width

    rows, epsilon = needed_for_width(facts, budget, factor)
    ways = [f"{rows} rows at this budget"] if rows is not None else []
    ways += [f"epsilon {epsilon:.3g} with these rows"] if epsilon is not None else []
    found = " or ".join(ways) if ways else "nothing up to 10 billion rows or epsilon 64"
    words = f"Intervals {factor:g} times as wide as those of least squares, on normal columns and errors: {found}."
    return {"factor": factor, "rows": rows, "epsilon": epsilon, "words": words}


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, (list, tuple)):
        return f"{len(value)} entries" if len(value) > 6 else ", ".join(map(_shown, value))
    return str(value)


def _rates(text: str | None) -> float | tuple[float, ...] | None:
    if text is None:
        return None
    rates = numbers("--learning-rate", text)
    return rates[0] if len(rates) == 1 else tuple(rates)
