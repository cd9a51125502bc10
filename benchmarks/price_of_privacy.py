"""Test loss of private random features at S0's size, beside the interpolant of the same draws and the prediction.

    python benchmarks/price_of_privacy.py [--draws 10] [--seed 0] [--json]

d=100, n=2000, p=40,000, tanh, y = sign(uᵀx), ε=4, δ=1/n, replace-one; 4000 test rows a draw (with 1000, the loss of a
draw varies by .01). Four private models a draw, the first three by the dual engine with its noise averaged:
- `exact`, `paper`: C = ½√p and ηT from S0's grid by 4000 validation rows, exact noise and S0's noise rule;
- `planned`: C and ηT of `plan_random_features`, nothing selected;
- `released`: one θ from `DPRandomFeaturesRegressor`, secure noise, certificate verified.
"""

from __future__ import annotations

import argparse
import json
import math

import numpy as np

from gratis import DPRandomFeaturesRegressor
from gratis.accounting import calibrate_mu, s0_noise_multiplier, verify_certificate
from gratis.models.random_features import TANH, RandomFeatures
from gratis.planning.random_features import plan_random_features
from gratis.planning.twins.random_features_twin import SignTwin
from gratis.records.budget import Budget
from gratis.stages.gram import Gram, accumulate_gram, decompose

N, D, P, HELD_OUT = 2000, 100, 40_000, 4000
BUDGET = Budget(epsilon=4.0, delta=1 / N)
TIMES = np.logspace(0, 1.2, 20)


def losses(twin: SignTwin, flows: np.ndarray, clip: float, multiplier: float, seed: int) -> np.ndarray:
    """Expected test losses after ηT = `flows` (B,), two noise seeds."""
    steps = max(50, math.ceil(8 * flows.max() * twin.largest_eigenvalue / N))
    totals = 2 * flows * clip / N * multiplier  # √T·s
    runs = twin.losses(
        steps=steps, learning_rates=flows / steps, clip_norms=np.full(len(flows), clip),
        noise_stds=totals / math.sqrt(steps), n_seeds=2, rng=np.random.default_rng(seed),
    )  # fmt: skip
    return runs.mean(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    plan = plan_random_features(N, D, P, BUDGET)
    multipliers = {
        "exact": 1 / calibrate_mu(BUDGET),
        "paper": s0_noise_multiplier(epsilon=BUDGET.epsilon, delta=BUDGET.delta),
    }
    rows = []
    for draw in range(options.draws):
        rng = np.random.default_rng((options.seed, draw))
        direction, feature_seed = rng.standard_normal(D), int(rng.integers(2**62))
        X, X_out = rng.standard_normal((N, D)), rng.standard_normal((2 * HELD_OUT, D))
        y, y_out = np.sign(X @ direction), np.sign(X_out @ direction)
        features = RandomFeatures(n_inputs=D, n_features=P, activation=TANH, seed=feature_seed)
        gram = accumulate_gram(features, X, X_out, dtype=np.float32)
        spectrum = decompose(gram.train)
        validation, test = (
            SignTwin(D, P, Gram(gram.train, gram.cross[part], gram.test_diagonal[part]), spectrum, y, y_out[part])
            for part in (slice(HELD_OUT), slice(HELD_OUT, None))
        )
        row = {"star": test.interpolant_loss}
        flows, clip = TIMES * D / P, math.sqrt(P) / 2
        for rule, multiplier in multipliers.items():
            chosen = int(np.argmin(losses(validation, flows, clip, multiplier, draw)))
            row[rule] = float(losses(test, flows, clip, multiplier, draw)[chosen])
        flow = np.array([plan.settings.learning_rate * plan.settings.steps])
        row["planned"] = float(losses(test, flow, plan.settings.clip_norm, multipliers["exact"], draw)[0])
        model = DPRandomFeaturesRegressor(
            epsilon=BUDGET.epsilon, delta=BUDGET.delta, n_features=P, feature_seed=feature_seed, preprocessing="none"
        ).fit(X, y)
        assert verify_certificate(model.certificate_) == []
        row["released"] = float(np.square(model.predict(X_out[HELD_OUT:]) - y_out[HELD_OUT:]).mean())
        rows.append(row)
        if not options.json:
            print({name: round(value, 4) for name, value in row.items()}, flush=True)
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    means = {name: float(values.mean()) for name, values in table.items()}
    errors = {name: float(values.std(ddof=1) / math.sqrt(len(values))) for name, values in table.items()}
    report = {
        "n": N, "d": D, "p": P, "epsilon": BUDGET.epsilon, "delta": BUDGET.delta, "neighbouring": "replace-one",
        "draws": options.draws, "seed": options.seed, "test_rows": HELD_OUT,
        "mean_test_loss": means, "standard_error": errors,
        "gap_shrinks": (means["paper"] - means["star"]) / (means["exact"] - means["star"]),
        "predicted_test_loss": plan.prediction.value,
        "predicted_nonprivate_loss": plan.prediction.details["predicted_nonprivate_loss"],
        "rows": rows,
    }  # fmt: skip
    print(json.dumps(report, indent=1) if options.json else {k: v for k, v in report.items() if k != "rows"})


if __name__ == "__main__":
    main()
