"""Settings of full-batch private training of a ReLU network, from public facts alone."""

from __future__ import annotations

import itertools
import math

from gratis.accounting.calibration import calibrate_mu
from gratis.accounting.network_descent import network_descent_event
from gratis.planning.bounds.initialization import Scheme, gradient_norm_constant, layer_variances
from gratis.records.budget import Budget
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import NetworkSettings

__all__ = ["plan_network"]

_STEPS = 75
_CLIP_FRACTION = 1 / 28
_NOISE_TO_INITIAL = 1.0
_DEEPEST, _MOST_WEIGHTS = 1000, 10**9
_FALLING = 2 / math.sqrt(3)
_NAMES = {Scheme.HE: "He", Scheme.LECUN: "LeCun", Scheme.XAVIER: "Xavier", Scheme.NTK: "NTK"}


def plan_network(
    n_records: int,
    n_inputs: int,
    n_classes: int,
    *,
    budget: Budget,
    width: int = 1000,
    depth: int = 1,
    steps: int = _STEPS,
    init: str = "he",
) -> Plan:
    """Plan `stages.networks.train_full_batch` of a no-bias ReLU network on inputs of mean square 1 a coordinate.

    Three rules, none of which looks at data:

    * *Clip norm* C = √d/28. With He weights and ‖x‖ = √d a record's gradient at the start has norm about √(2d), so
      all records are clipped at first and each has the same say.
    * *Total rate* A = Σ η_t C. The clipped mean has norm at most 1 in units of C, so A bounds the way the weights can
      travel; the accumulated noise has standard deviation A·(2/√3)·κr/(nμ) a weight, whatever T is (rates that fall
      linearly to 0). A is chosen so that this equals the initial weights' √(2/d): more would drown the features,
      less would leave the weights near their start.
    * *Steps* T = 75: T does not change the accumulated noise; more steps follow the path more finely and cost time.

    Other initialisations keep these rules in their own units: the clip norm is the same share of a typical gradient at
    the start (its length is known: S3, Lemma C.3), the noise ends as large as the first layer's initial weights.

    The prediction is of the noise in the weights, which follows from the plan alone; accuracy depends on the data
    and is not predicted.

    Parameters
    ----------
    n_records, n_inputs, n_classes : int
        Public sizes n, d and the number of outputs.
    budget : Budget
        What may be spent; its relation sets κ.
    width, depth : int
        Hidden width and number of hidden layers.
    steps : int
        T.
    init : "he", "lecun", "xavier" or "ntk"
        Initial weights: variances 2/fan_in, 1/fan_in, 2/(fan_in + fan_out), or 2/fan_out with 1/outputs at the end.

    >>> plan = plan_network(50_000, 784, 10, budget=Budget(epsilon=1.0, delta=1 / 50_000))
    >>> plan.settings.clip_norm, plan.settings.steps, round(plan.settings.total_rate, -1)
    (1.0, 75, 300.0)
    """
    sizes = _sizes(n_inputs, width, depth, n_classes)
    mu = calibrate_mu(budget)
    event = network_descent_event(n_records, steps, mu=mu, neighbouring=budget.neighbouring)
    scheme = Scheme.parse(init)
    variances, he = layer_variances(scheme, sizes), layer_variances(Scheme.HE, sizes)
    initial_std = math.sqrt(variances[0])
    # Noise of all steps together for total rate 1, a weight: √(Σ(η_tC)²)·s with rates that fall to 0.
    noise_for_unit_rate = _FALLING * event.noise_stds.values[0] / math.sqrt(event.steps)
    total_rate = _NOISE_TO_INITIAL * initial_std / noise_for_unit_rate
    typical = gradient_norm_constant(sizes, variances) / gradient_norm_constant(sizes, he)
    clip_norm = _CLIP_FRACTION * math.sqrt(n_inputs) * (1.0 if scheme is Scheme.HE else math.sqrt(typical))
    of_clip = "" if scheme is Scheme.HE else f"·{math.sqrt(typical):.3g}, the length of its gradients beside He's"
    ratio = total_rate * noise_for_unit_rate / initial_std
    return Plan(
        algorithm="full-batch network",
        schedule="linear to zero",
        settings=NetworkSettings(
            widths=tuple(sizes),
            clip_norm=clip_norm,
            steps=event.steps,
            total_rate=total_rate,
            mean_rate=total_rate / (clip_norm * event.steps),
            average=False,
        ),
        budget=budget,
        event=event,
        prediction=Prediction(
            quantity="noise_to_initial_weight_ratio",
            value=ratio,
            low=ratio,
            high=ratio,
            source="exact law of the accumulated noise",
            assumptions=("inputs have mean square 1 a coordinate", f"{_NAMES[scheme]} initialisation, no biases"),
            details={"mu": mu, "parameters": sum(a * b for a, b in itertools.pairwise(sizes))},
        ),
        reasons=(
            f"clip norm {clip_norm:.3g} = √d/28{of_clip}: every record is clipped at the start, so all have the same "
            "say",
            f"total rate {total_rate:.3g}: the noise in a weight ends up as large as its initial value",
            f"{event.steps} steps: the accumulated noise does not depend on their number",
        ),
    )


def _sizes(n_inputs: int, width: int, depth: int, n_classes: int) -> list[int]:
    inputs, hidden, layers = check_count("n_inputs", n_inputs), check_count("width", width), check_count("depth", depth)
    outputs = check_count("n_classes", n_classes, minimum=2)
    if layers > _DEEPEST:
        raise GratisError(f"depth must be at most {_DEEPEST} hidden layers, got {layers}")
    weights = hidden * (inputs + (layers - 1) * hidden + outputs)
    if weights > _MOST_WEIGHTS:
        raise GratisError(
            f"a network of width {hidden} and depth {layers} would have more than {_MOST_WEIGHTS:.0e} weights; "
            "lower width or depth"
        )
    return [inputs, *[hidden] * layers, outputs]
