"""Private training of networks: the steps, the noise law, the sampler, and what is refused before anything is spent."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gratis.accounting import account, calibrate_mu, epsilon_upper_bound  # noqa: E402
from gratis.accounting.network_descent import network_descent_event  # noqa: E402
from gratis.mechanisms.ghost_clipping import ClippedGradientSum  # noqa: E402
from gratis.mechanisms.noise import NoiseSource  # noqa: E402
from gratis.models.mlp import build_mlp  # noqa: E402
from gratis.numerics.network_rounding import network_rounding_inflation  # noqa: E402
from gratis.records.budget import Budget  # noqa: E402
from gratis.records.errors import GratisError  # noqa: E402
from gratis.records.events import PoissonSubsampledGaussian  # noqa: E402
from gratis.records.neighbouring import Neighbouring  # noqa: E402
from gratis.records.sequences import Runs  # noqa: E402
from gratis.stages.networks import falling_rates, train_full_batch, train_poisson  # noqa: E402
from gratis.stages.poisson_sampling import PoissonSampling  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 8)).astype(np.float32)
Y = RNG.integers(3, size=60)
POISSON = PoissonSubsampledGaussian(sampling_rate=0.5, noise_multiplier=1.0, steps=3, neighbouring="zero-out")


class Untouched(NoiseSource):
    """A source that must not be asked."""

    def __init__(self) -> None:
        super().__init__(0, secure=False)

    def release(self, values, std):
        raise AssertionError("something was released before all checks passed")


def event_of(steps: int, std: float | None = None, *, neighbouring=Neighbouring.REPLACE_ONE):
    event = network_descent_event(60, steps, mu=1.0, neighbouring=neighbouring)
    return event if std is None else replace(event, noise_stds=Runs.constant(std, steps))


def flat(module) -> np.ndarray:
    return torch.cat([p.detach().double().flatten() for p in module.parameters()]).numpy()


def test_the_event_spends_the_budget_and_no_more() -> None:
    for relation, epsilon in itertools.product(Neighbouring, (0.5, 4.0)):
        budget = Budget(epsilon=epsilon, delta=1e-5, neighbouring=relation)
        mu = calibrate_mu(budget)
        event = network_descent_event(50_000, 75, mu=mu, neighbouring=relation)
        spent = account(event)
        assert mu * (1 - 1e-6) < spent.mu <= mu
        assert epsilon_upper_bound(spent, delta=1e-5) <= epsilon
        assert event.rounding_inflation >= network_rounding_inflation(50_000, sensitivity=relation.sensitivity_factor)


def test_full_batch_steps_are_clipped_descent() -> None:
    """With hardly any noise the run is plain descent on the mean clipped gradient."""
    module = build_mlp([8, 6, 3], seed=1)
    twin = build_mlp([8, 6, 3], seed=1)
    rates = falling_rates(0.7, 5)
    train_full_batch(
        module, X, Y, event=event_of(5, 1e-7), clip_norm=0.4, learning_rates=rates, noise=NoiseSource.insecure(0)
    )
    gradient = ClippedGradientSum(twin, clip_norm=0.4, micro_batch=7)
    for rate in rates:
        parts = gradient.split(gradient(X, Y) / 60)
        with torch.no_grad():
            for parameter, part in zip(twin.parameters(), parts, strict=True):
                parameter -= rate * part
    np.testing.assert_allclose(flat(module), flat(twin), atol=1e-5)
    assert rates.mean() == pytest.approx(0.7)
    assert np.all(np.diff(rates) < 0)


def pure_noise(event, clip_norm: float, rate: float) -> np.ndarray:
    """Void labels: every record adds zero, so a step is noise alone."""
    module = nn.Linear(8, 3000, bias=False)
    before = flat(module)
    train_full_batch(
        module, X, np.full(60, -1), event=event, clip_norm=clip_norm, learning_rates=rate, noise=NoiseSource.insecure(3)
    )
    return (flat(module) - before) / (rate * clip_norm)


def test_noise_law() -> None:
    event = event_of(1)
    std = event.noise_stds.values[0]
    noise = pure_noise(event, clip_norm=5.0, rate=2.0)
    assert stats.kstest(noise / std, "norm").pvalue > 1e-3
    # κ√T·inflation/(nμ), from the definition.
    assert std == pytest.approx(2 * network_rounding_inflation(60, sensitivity=2) / 60, rel=1e-9)
    four = pure_noise(event_of(4, std), clip_norm=0.1, rate=1.0)
    assert four.std() == pytest.approx(2 * std, rel=0.02)
    # Negative control: 5 % less noise is seen.
    assert stats.kstest(0.95 * noise / std, "norm").pvalue < 1e-3


def test_averaging_takes_the_last_half_of_the_iterates() -> None:
    def run(steps: int, average: bool) -> np.ndarray:
        module = build_mlp([8, 3], seed=2)
        train_full_batch(
            module, X, Y, event=event_of(steps, 0.1), clip_norm=1.0, learning_rates=0.5,
            noise=NoiseSource.insecure(1), average=average,
        )  # fmt: skip
        return flat(module)

    iterates = [run(steps, False) for steps in (1, 2, 3)]
    np.testing.assert_allclose(run(3, True), (iterates[1] + iterates[2]) / 2, atol=1e-6)


def test_optimisers_walk_on_the_released_gradients() -> None:
    module, twin = build_mlp([8, 3], seed=2), build_mlp([8, 3], seed=2)
    settings = {"event": event_of(3, 0.1), "clip_norm": 1.0, "learning_rates": 0.5}
    train_full_batch(
        module, X, Y, **settings, noise=NoiseSource.insecure(1), optimiser=partial(torch.optim.SGD, lr=1, momentum=0.9)
    )
    noise, gradient = NoiseSource.insecure(1), ClippedGradientSum(twin, clip_norm=1.0)
    velocity = 0.0
    for _ in range(3):
        velocity = 0.9 * velocity + noise.release(gradient(X, Y) / 60, 0.1)
        with torch.no_grad():
            twin[0].weight -= 0.5 * torch.from_numpy(velocity).reshape(3, 8)
    np.testing.assert_allclose(flat(module), flat(twin), atol=1e-5)
    assert all(p.grad is None for p in module.parameters())


def test_micro_batches_bound_what_is_held_at_once() -> None:
    seen: list[int] = []
    module = build_mlp([8, 6, 3])
    module[0].register_forward_hook(lambda layer, arguments, output: seen.append(len(output)))
    train_full_batch(
        module, X, Y, event=event_of(2), clip_norm=1.0, learning_rates=0.1, noise=NoiseSource.insecure(0), micro_batch=9
    )
    assert max(seen) == 9


def test_lists_read_only_and_reversed_arrays_are_read() -> None:
    def run(records, labels) -> np.ndarray:
        module = build_mlp([8, 3], seed=2)
        noise = NoiseSource.insecure(1)
        train_full_batch(
            module, records, labels, event=event_of(1, 0.1), clip_norm=1.0, learning_rates=0.5, noise=noise
        )
        return flat(module)

    frozen = X.copy()
    frozen.flags.writeable = False
    for records, labels in ((X.tolist(), Y.tolist()), (frozen, Y), (X[::-1], Y[::-1]), (torch.from_numpy(X), Y)):
        np.testing.assert_allclose(run(records, labels), run(X, Y), atol=1e-6)


SAMPLING = PoissonSampling(
    400, PoissonSubsampledGaussian(sampling_rate=0.1, noise_multiplier=1.0, steps=500, neighbouring="replace-one")
)


def included(batches, n: int = 400) -> np.ndarray:
    table = np.zeros((len(batches), n))
    for row, batch in zip(table, batches, strict=True):
        row[batch] = 1
    return table


def looks_like_poisson(table: np.ndarray, rate: float) -> bool:
    """Each record's count, and each batch's size, must have binomial mean and spread."""
    counts = stats.norm.sf(abs(table.mean() - rate) / np.sqrt(rate * (1 - rate) / table.size))
    sizes = table.sum(axis=1).var() / (table.shape[1] * rate * (1 - rate))
    repeats = table.sum(axis=0).var() / (table.shape[0] * rate * (1 - rate))
    return bool(counts > 1e-4 and abs(sizes - 1) < 0.3 and abs(repeats - 1) < 0.3)


@pytest.mark.statistical(failure=3e-4)
def test_sampler_law(rng: np.random.Generator) -> None:
    table = included(list(SAMPLING.batches(NoiseSource.insecure(4))))
    assert len(table) == SAMPLING.event.steps
    assert looks_like_poisson(table, 0.1)
    assert not looks_like_poisson(table, 0.11)
    uniform = [rng.choice(400, 40, replace=False) for _ in range(500)]
    assert not looks_like_poisson(included(uniform), 0.1), "a fixed batch size is not Poisson sampling"
    shuffled = [part for _ in range(50) for part in rng.permutation(400).reshape(10, 40)]
    assert not looks_like_poisson(included(shuffled), 0.1), "shuffled epochs are not Poisson sampling"


def test_batches_come_from_the_secret_source() -> None:
    first = [list(map(tuple, SAMPLING.batches(NoiseSource.secure()))) for _ in range(2)]
    assert first[0] != first[1]


def test_poisson_step_divides_by_the_expected_batch_size() -> None:
    event = PoissonSubsampledGaussian(sampling_rate=0.3, noise_multiplier=1e-7, steps=1, neighbouring="zero-out")
    sampling = PoissonSampling(60, event)
    module = build_mlp([8, 3], seed=3)
    gradient = ClippedGradientSum(build_mlp([8, 3], seed=3), clip_norm=0.5)
    rows = next(sampling.batches(NoiseSource.insecure(8)))
    assert len(rows) != 18
    expected = flat(module) - 2.0 * gradient(X, Y, rows) / 18
    result = train_poisson(
        module, X, Y, sampling=sampling, clip_norm=0.5, learning_rates=2.0, noise=NoiseSource.insecure(8)
    )
    np.testing.assert_allclose(flat(module), expected, atol=1e-6)
    assert result.event is event


def test_poisson_noise_is_the_events() -> None:
    event = PoissonSubsampledGaussian(sampling_rate=0.5, noise_multiplier=3.0, steps=1, neighbouring="replace-one")
    module = nn.Linear(8, 3000, bias=False)
    before = flat(module)
    train_poisson(
        module, X, np.full(60, -1), sampling=PoissonSampling(60, event), clip_norm=2.0, learning_rates=1.0,
        noise=NoiseSource.insecure(0),
    )  # fmt: skip
    noise = (flat(module) - before) * 30 / 2.0 / network_rounding_inflation(60, sensitivity=2)
    assert stats.kstest(noise / 3.0, "norm").pvalue > 1e-3


def test_calibrated_sampling_asks_the_accountant_for_its_own_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(
        "gratis.stages.poisson_sampling.calibrate_subsampled_noise_multiplier",
        lambda **arguments: asked.update(arguments) or 1.7,
    )
    budget = Budget(epsilon=2.0, delta=1e-5, neighbouring="zero-out")
    sampling = PoissonSampling.calibrated(1000, expected_batch_size=200, steps=4, budget=budget)
    relation = Neighbouring.ZERO_OUT
    assert asked == {"epsilon": 2.0, "delta": 1e-5, "sampling_rate": 0.2, "steps": 4, "neighbouring": relation}
    assert sampling.event == PoissonSubsampledGaussian(
        sampling_rate=0.2, noise_multiplier=1.7, steps=4, neighbouring=relation
    )
    with pytest.raises(GratisError, match="epsilon and delta"):
        PoissonSampling.calibrated(1000, expected_batch_size=200, steps=4, budget=Budget(mu=1.0))
    with pytest.raises(GratisError, match="at most n_records"):
        PoissonSampling.calibrated(100, expected_batch_size=200, steps=4, budget=budget)


@pytest.mark.slow
def test_a_calibrated_multiplier_meets_the_budget() -> None:
    """1.72 is what calibration finds for ε=2 at q=.2, T=4 under replace-one; 1.6 would not do."""
    pytest.importorskip("dp_accounting")

    def spent(multiplier: float) -> float:
        event = PoissonSubsampledGaussian(
            sampling_rate=0.2, noise_multiplier=multiplier, steps=4, neighbouring="replace-one"
        )
        return epsilon_upper_bound(account(PoissonSampling(1000, event).event), delta=1e-5)

    assert 1.9 < spent(1.72) <= 2.0 < spent(1.6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"module": nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3))}, "mixes records"),
        ({"module": nn.Linear(9, 3)}, "synthetic records"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": float("nan")}, "clip_norm"),
        ({"learning_rates": [1.0, 2.0]}, "learning_rates"),
        ({"learning_rates": float("inf")}, "learning_rates"),
        ({"learning_rates": 1e300}, "learning_rates must be one number from 0 to 1e"),
        ({"learning_rates": [1.0, 1e39, 1.0]}, "learning_rates"),
        ({"learning_rates": 10**400}, "learning_rates"),
        ({"learning_rates": "a"}, "learning_rates"),
        ({"learning_rates": [1.0, [2.0]]}, "learning_rates"),
        ({"noise": np.random.default_rng(0)}, "noise must be a NoiseSource.*got a Generator"),
        ({"noise": None}, "noise must be a NoiseSource"),
        ({"event": POISSON}, "event must be a FullBatchDescent"),
        ({"module": "network"}, "torch.nn.Module"),
        ({"y": Y.astype(float)}, "whole numbers"),
        ({"X": X.astype(np.uint8)}, "floating point"),
        ({"X": torch.tensor(1.0)}, "same positive number"),
        ({"X": [[1.0, 2.0], [3.0]]}, "different lengths"),
        ({"optimiser": "adam"}, "optimiser must make"),
        ({"micro_batch": 0}, "micro_batch"),
        ({"X": X[:50], "y": Y[:50]}, "made for 60 records"),
        ({"y": Y[:50]}, "same positive number"),
        ({"event": replace(event_of(3), rounding_inflation=1.0)}, "rounding_inflation"),
    ],
)
def test_bad_requests_fail_before_anything_is_spent(change: dict, words: str) -> None:
    arguments = {"module": build_mlp([8, 3]), "X": X, "y": Y, "event": event_of(3), "clip_norm": 1.0}
    arguments |= {"learning_rates": 0.1, "noise": Untouched()} | change
    with pytest.raises(GratisError, match=words):
        train_full_batch(arguments.pop("module"), arguments.pop("X"), arguments.pop("y"), **arguments)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sampling": POISSON}, "sampling must be a PoissonSampling"),
        ({"noise": np.random.default_rng(0)}, "noise must be a NoiseSource"),
        ({"learning_rates": 1e300}, "learning_rates"),
        ({"sampling": PoissonSampling(60, replace(POISSON, steps=10**15))}, "steps must be at most"),
    ],
)
def test_bad_requests_of_subsampled_training_fail_before_anything_is_spent(change: dict, words: str) -> None:
    arguments = {"sampling": PoissonSampling(60, POISSON), "clip_norm": 1.0, "learning_rates": 0.1}
    with pytest.raises(GratisError, match=words):
        train_poisson(build_mlp([8, 3]), X, Y, **arguments | {"noise": Untouched()} | change)


def test_the_event_reads_the_relation_by_its_name_and_refuses_absurd_sizes() -> None:
    for relation in Neighbouring:
        assert network_descent_event(60, 3, mu=1.0, neighbouring=str(relation)) == event_of(3, neighbouring=relation)
    with pytest.raises(GratisError, match="unknown neighbouring"):
        network_descent_event(60, 3, mu=1.0, neighbouring="replace")
    for sizes, name in (((10**30, 3), "n_records"), ((10**16, 3), "n_records"), ((60, 10**30), "steps")):
        with pytest.raises(GratisError, match=f"{name} must be at most"):
            network_descent_event(*sizes, mu=1.0, neighbouring="zero-out")
    with pytest.raises(GratisError, match="steps must be at most"):
        falling_rates(1.0, 10**30)
    with pytest.raises(ValueError, match="too many records"):
        network_rounding_inflation(2**53, sensitivity=1.0)


def test_an_index_outside_its_table_does_not_stop_training() -> None:
    tokens = np.random.default_rng(0).integers(50, size=(60, 5))
    tokens[20, 0] = 999
    module = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(20, 2))
    train_full_batch(
        module, tokens, Y % 2, event=event_of(2), clip_norm=1.0, learning_rates=0.1, noise=NoiseSource.insecure(0)
    )
    assert np.isfinite(flat(module)).all()


def test_the_largest_rate_raises_nothing() -> None:
    for optimiser in (None, torch.optim.Adam):
        train_full_batch(
            build_mlp([8, 3]), X, Y, event=event_of(3), clip_norm=1.0, learning_rates=1e30,
            noise=NoiseSource.insecure(0), optimiser=optimiser, average=True,
        )  # fmt: skip


def test_bad_records_do_not_stop_training() -> None:
    bad, labels = X.copy(), Y.copy()
    bad[0] = np.nan
    bad[1] = 1e38
    labels[2] = 77
    module = build_mlp([8, 6, 3])
    train_full_batch(
        module, bad, labels, event=event_of(3), clip_norm=1.0, learning_rates=0.1, noise=NoiseSource.insecure(0)
    )
    assert np.isfinite(flat(module)).all()


def test_initial_weights_come_from_the_public_seed_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = build_mlp([50, 400, 10], seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert np.array_equal(flat(first), flat(build_mlp([50, 400, 10], seed=5)))
    assert not np.array_equal(flat(first), flat(build_mlp([50, 400, 10], seed=6)))
    assert first[0].weight.std().item() == pytest.approx(np.sqrt(2 / 50), rel=0.02)
    assert first[0].bias is None
    with pytest.raises(GratisError):
        build_mlp([5])


class Remembering(nn.Module):
    """Writes into its buffers what is large, which no synthetic record is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.register_buffer("written", torch.zeros(1))
        self.register_buffer("exchanged", torch.zeros(1))
        self.fail = False

    def forward(self, x):
        largest = x.detach().abs().max()
        if largest > 50:
            self.written.fill_(largest)
            self.exchanged = largest[None]
            self.register_buffer("added", largest[None])
            if self.fail:
                raise KeyboardInterrupt
        return self.layer(x)


@pytest.mark.parametrize("way", [train_full_batch, train_poisson])
@pytest.mark.parametrize("fail", [False, True])
def test_no_buffer_keeps_a_private_value(way, fail: bool) -> None:
    records = X.copy()
    records[:, 0] = 77.0
    module = Remembering()
    settings = {"event": event_of(2)} if way is train_full_batch else {"sampling": PoissonSampling(60, POISSON)}
    settings |= {"clip_norm": 1.0, "learning_rates": 0.1, "noise": NoiseSource.insecure(0)}
    module.fail = fail
    if fail:
        with pytest.raises(KeyboardInterrupt):
            way(module, records, Y, **settings)
    else:
        way(module, records, Y, **settings)
    assert {name: float(value) for name, value in module.named_buffers()} == {"written": 0.0, "exchanged": 0.0}
    module.fail = False
    module(torch.from_numpy(records))
    assert module.written == 77, "the module does write where nobody restores"
