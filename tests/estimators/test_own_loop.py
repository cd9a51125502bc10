"""A user's own loop: the same gradients as our trainers', paid before the first step, counted, resumed, refused."""

from __future__ import annotations

import copy
import pickle
import shutil
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

torch = pytest.importorskip("torch")
pytest.importorskip("dp_accounting")
from torch import nn  # noqa: E402

import gratis  # noqa: E402
from gratis.accounting import account, delta_upper_bound, verify_certificate  # noqa: E402
from gratis.audits.distinguishing import audit_scores  # noqa: E402
from gratis.audits.hostile import HostileTables  # noqa: E402
from gratis.audits.replay import Fitted  # noqa: E402
from gratis.audits.trainings import audit_tables  # noqa: E402
from gratis.cli.program import run  # noqa: E402
from gratis.estimators.released_arrays import arrays_digest, module_arrays  # noqa: E402
from gratis.mechanisms import ghost_clipping  # noqa: E402
from gratis.mechanisms.ghost_clipping import ClippedGradientSum  # noqa: E402
from gratis.mechanisms.noise import NoiseSource  # noqa: E402
from gratis.models.mlp import build_mlp  # noqa: E402
from gratis.records.budget import Budget  # noqa: E402
from gratis.records.errors import GratisError  # noqa: E402
from gratis.records.events import PoissonSubsampledGaussian  # noqa: E402
from gratis.records.neighbouring import Neighbouring  # noqa: E402
from gratis.stages.networks import train_full_batch, train_poisson  # noqa: E402
from gratis.stages.poisson_sampling import PoissonSampling  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 8)).astype(np.float32)
Y = RNG.integers(3, size=60)
BUDGET = Budget(epsilon=8.0, delta=1e-5, neighbouring="zero-out")
POISSON = {"batch_size": 12, "noise_multiplier": 1.0}
SEEDED = {"noise_seed": 7, "insecure_reproducible": True}


def flat(module: Any) -> np.ndarray:
    return torch.cat([p.detach().double().flatten() for p in module.parameters()]).numpy()


def loop_for(module: Any, records: Any = X, targets: Any = Y, steps: int = 8, **settings: Any) -> Any:
    return gratis.privatise(module, records, targets, **{"budget": BUDGET, "steps": steps, "clip_norm": 1.0} | settings)


@pytest.fixture
def ledger(tmp_path: Any) -> Any:
    return gratis.Ledger.create(tmp_path / "l", {"people": Budget(epsilon=20.0, delta=1e-5, neighbouring="zero-out")})


@pytest.mark.slow(but=["full batch"])
@pytest.mark.parametrize("settings", [{}, POISSON], ids=["full batch", "Poisson"])
def test_the_loop_walks_as_our_trainers_do(settings: dict[str, Any]) -> None:
    module, twin = build_mlp([8, 6, 3], seed=1), build_mlp([8, 6, 3], seed=1)
    loop = loop_for(module, **settings, **SEEDED)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    assert [optimiser.step() or step for step in loop] == list(range(1, 9))
    same = {"clip_norm": 1.0, "learning_rates": 0.5, "noise": NoiseSource.insecure(7)}
    same |= {"optimiser": partial(torch.optim.SGD, lr=1, momentum=0.9)}
    if settings:
        train_poisson(twin, X, Y, sampling=PoissonSampling(60, loop.event), **same)
    else:
        train_full_batch(twin, X, Y, event=loop.event, **same)
    np.testing.assert_array_equal(flat(module), flat(twin))
    assert not verify_certificate(loop.certificate)
    assert loop.certificate.guarantee["within_budget"]
    assert {"own-loop", "records-apart"} <= set(loop.certificate.assumptions)
    assert "trusted-ranks" not in loop.certificate.assumptions


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.top = nn.Embedding(30, 6, padding_idx=0), nn.LayerNorm(6), nn.Linear(6, 2)

    def forward(self, ids: Any) -> Any:
        return self.top(self.norm(self.table(ids)).mean(1))


class Pairs(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return torch.full((1, 6, 6), place % 2 - 0.5), place % 2


def convolutions() -> Any:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 2))


@pytest.mark.parametrize("kind", ["text", "images"])
def test_text_and_image_batches_with_adam_and_a_schedule(kind: str, rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    large = Budget(epsilon=200.0, delta=1e-5, neighbouring="zero-out")
    if kind == "text":
        ids = rng.integers(1, 30, size=(200, 5))
        module, data, classes = Tokens(), (ids, (ids < 15).sum(1) // 3), (ids < 15).sum(1) // 3
        ids[3, 1] = 999  # no such token: must not raise
        records = torch.from_numpy(np.minimum(ids, 29))
    else:
        module, data, classes = convolutions(), (Pairs(), None), np.arange(40) % 2
        records = torch.stack([Pairs()[i][0] for i in range(40)])
    loop = loop_for(module, *data, steps=60, budget=large, clip_norm=0.5)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 60)
    for _ in loop:
        optimiser.step()
        schedule.step()
    assert ((module(records).argmax(1).numpy() == classes).mean()) > 0.85


@pytest.mark.slow
def test_paid_before_the_first_step_and_not_before(ledger: Any) -> None:
    module = build_mlp([8, 3])
    books = {"ledger": ledger, "dataset": "people"}
    loop = loop_for(module, **POISSON, **books)
    with pytest.raises(GratisError, match="nothing was released"):
        loop.finish()
    assert ledger.status("people").reservations == 0

    def interrupted() -> None:
        for step in loop:
            assert ledger.status("people").reservations == 1
            if step == 3:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    reserved = ledger.status("people").never_committed
    assert [entry.event for entry in reserved] == [loop.event]
    with pytest.raises(GratisError, match="no certificate yet"):
        loop.certificate  # noqa: B018
    certificate = loop.finish()
    # All that was reserved is certified: the moment to stop may have been chosen from what was released.
    assert (certificate.event, certificate.plan["steps_run"]) == (loop.event, 3)
    assert not verify_certificate(certificate)
    assert certificate.ledger_entry["id"] == reserved[0].id
    assert not ledger.status("people").never_committed
    with pytest.raises(GratisError, match="the 3 steps of this run are used"):
        loop.step()


def test_no_step_more_than_planned() -> None:
    module = build_mlp([8, 3])
    loop = loop_for(module, steps=2)
    assert list(loop) == [1, 2]
    for further in (loop.step, lambda: list(loop)):
        before = [p.grad.clone() for p in module.parameters()]
        with pytest.raises(GratisError, match="the 2 steps of this run are used"):
            further()
        assert all(map(torch.equal, before, [p.grad for p in module.parameters()]))


def test_a_ledger_that_cannot_pay_stops_the_first_step(ledger: Any) -> None:
    module = build_mlp([8, 3])
    books = {"ledger": ledger, "dataset": "people"}
    large = Budget(epsilon=15.0, delta=1e-5, neighbouring="zero-out")
    list(loop_for(module, steps=1, budget=large, **books))
    loop = loop_for(module, steps=1, budget=large, **books)
    with pytest.raises(GratisError, match="nothing was reserved"):
        list(loop)
    assert ledger.status("people").reservations == 1
    assert loop.n_released == 0
    assert all(p.grad is None for p in module.parameters())


def test_resumed_runs_release_no_step_twice(ledger: Any) -> None:
    books = {"ledger": ledger, "dataset": "people"} | POISSON
    module = build_mlp([8, 3], seed=2)
    first = loop_for(module, **books)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(3):
        first.step()
        optimiser.step()
    saved = {"module": module.state_dict(), "optimiser": optimiser.state_dict(), "loop": first.state_dict()}
    assert saved["loop"]["released"] == 3

    second = loop_for(module, **books)
    second.load_state_dict(saved["loop"])
    assert second.n_released == 3
    assert second.step() == 4
    # The first one lives still: what the second claimed is not its any more.
    with pytest.raises(GratisError, match="count as released, by a run that went on"):
        first.step()
    # The same checkpoint again: step 4 was released, and another step 4 would be one release more.
    third = loop_for(module, **books)
    with pytest.raises(GratisError, match="1 steps may have been released since this checkpoint"):
        third.load_state_dict(saved["loop"])
    third.load_state_dict(saved["loop"], forfeit=True)
    assert list(third) == [5, 6, 7, 8]
    assert ledger.status("people").reservations == 1
    assert not ledger.status("people").never_committed
    for late in (second.step, partial(loop_for(module, **books).load_state_dict, saved["loop"])):
        with pytest.raises(GratisError, match=r"committed|is finished"):
            late()
    ledger.verify()


def test_a_crash_loses_no_more_than_a_block_and_reuses_nothing(ledger: Any) -> None:
    books = {"ledger": ledger, "dataset": "people"}
    module = build_mlp([8, 3], seed=2)
    first = loop_for(module, steps=200, **books)
    first.step()
    state = first.state_dict()
    first.step()  # claims a block of thirteen, and dies
    second = loop_for(module, steps=200, **books)
    with pytest.raises(GratisError, match="13 steps may have been released"):
        second.load_state_dict(state)
    second.load_state_dict(state, forfeit=True)
    assert second.step() == 15
    gradients = [flat_gradient(module)]
    third = loop_for(module, steps=200, **books)
    third.load_state_dict(state, forfeit=True)
    third.step()
    gradients.append(flat_gradient(module))
    assert not np.array_equal(*gradients), "the same weights and another noise"


def flat_gradient(module: Any) -> np.ndarray:
    return torch.cat([p.grad.flatten() for p in module.parameters()]).numpy()


def test_what_cannot_be_resumed(ledger: Any) -> None:
    module = build_mlp([8, 3])
    alone = loop_for(module)
    alone.step()
    with pytest.raises(GratisError, match="only a run with a ledger"):
        loop_for(module).load_state_dict(alone.state_dict())
    books = {"ledger": ledger, "dataset": "people"}
    paid = loop_for(module, **books)
    paid.step()
    state = paid.state_dict()
    for other in ({"clip_norm": 2.0}, {"steps": 9}):
        with pytest.raises(GratisError, match="another schedule, budget or clip norm"):
            loop_for(module, **books | other).load_state_dict(state)
    with pytest.raises(GratisError, match="before the first step"):
        paid.load_state_dict(state)
    with pytest.raises(GratisError, match="not the state of a loop"):
        loop_for(module, **books).load_state_dict({})
    fresh = loop_for(module, **books)
    fresh.load_state_dict(loop_for(module, **books).state_dict())
    assert fresh.n_released == 0


class Late(nn.Module):
    """Mixes records in training mode only."""

    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.top(x - x.mean(0) if self.training else x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3)), "mixes records"),
        (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3)), "Dropout is not supported"),
        (Late, "it mixes records"),
    ],
)
def test_modules_that_mix_are_refused_also_when_the_mode_changes(ledger: Any, make: Any, words: str) -> None:
    books = {"ledger": ledger, "dataset": "people"}
    module = make()
    with pytest.raises(GratisError, match=words):
        loop_for(module, **books)
    loop = loop_for(module.eval(), steps=3, **books)
    module.train()
    with pytest.raises(GratisError, match=words):
        loop.step()
    assert ledger.status("people").reservations == loop.n_released == 0
    module.eval()
    assert list(loop) == [1, 2, 3]


def test_parameters_that_come_and_go_are_refused() -> None:
    module = build_mlp([8, 6, 3])
    loop = loop_for(module)
    loop.step()
    module[0].weight.requires_grad_(False)
    with pytest.raises(GratisError, match="no longer those that were checked"):
        loop.step()
    module[0].weight.requires_grad_(True)
    assert loop.step() == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget": 3.0}, "budget must be"),
        ({"steps": 0}, "steps"),
        ({"steps": 10**9}, "steps must be at most"),
        ({"dataset": "people"}, "belong together"),
        ({"targets": None}, "pairs of equal shapes"),
        ({"records": iter(X), "targets": None}, "map-style torch Dataset"),
        ({"noise_multiplier": 1.0}, "give batch_size too"),
        ({"batch_size": 12, "noise_multiplier": 0.05}, "does not meet the budget"),
        ({"batch_size": 12, "noise_multiplier": 1.0, "budget": Budget(mu=1.0)}, "epsilon and delta"),
        ({"noise_seed": 3}, "voids the guarantee"),
        ({"distributed": True}, "init_process_group"),
    ],
)
def test_bad_requests_fail_before_anything_is_spent(change: dict[str, Any], words: str) -> None:
    with pytest.raises(GratisError, match=words):
        loop_for(build_mlp([8, 3]), **change)


def test_a_failing_record_ends_the_loop_and_quotes_nothing() -> None:
    class Choosy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.top = nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            if (x > 50).any():
                raise ValueError("a private value: 77")
            return self.top(x)

    records = X.copy()
    records[5] = 77.0
    module = Choosy()
    loop = loop_for(module, records)
    with pytest.raises(GratisError, match="failed on a micro-batch") as caught:
        loop.step()
    assert caught.value.__context__ is None
    assert loop.n_released == 1
    with pytest.raises(GratisError, match="an earlier step of this loop failed"):
        loop.step()


@pytest.mark.slow(but=["full batch-replace-one", "full batch-zero-out"])
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("settings", [{}, {"batch_size": 16, "noise_multiplier": 1.0}], ids=["full batch", "Poisson"])
def test_replay_on_hostile_neighbours(
    monkeypatch: pytest.MonkeyPatch, relation: Neighbouring, settings: dict[str, Any]
) -> None:
    seeds = count()
    monkeypatch.setattr(ClippedGradientSum, "check", lambda *_: None)  # most of the time of so small a training

    def audit(pairs: int) -> Any:
        def training(table: Any) -> Any:
            with np.errstate(over="ignore"):
                records = table.X.astype(np.float32)
            labels = np.where(np.isfinite(table.y), table.y, -1).astype(np.int64)

            def train(tap: Any) -> Fitted:
                source = tap(NoiseSource.insecure(next(seeds)))  # which records a batch holds is tested
                monkeypatch.setattr("gratis.estimators.own_loop.noise_source", lambda *_, **__: source)
                module = build_mlp((records.shape[1], 6, 2), seed=0)
                optimiser = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.5)
                budget = Budget(epsilon=40.0, delta=1e-3, neighbouring=relation)
                loop = loop_for(module, records, labels, steps=2, budget=budget, **settings)
                for _ in loop:
                    optimiser.step()
                return Fitted(loop.certificate.event, (module, loop.certificate))

            return train

        tables = HostileTables(n=20, d=2, classes=(0, 1), invalid=True, outside=False)
        return audit_tables(training, tables, relation, pairs=pairs, rng=np.random.default_rng(2))

    found = audit(12)
    assert not found.alarm, (found.verdict, found.differences)
    assert found.largest_ratio > 0.3
    # Negative control: without clipping a hostile record moves the sum by more than is certified.
    monkeypatch.setattr(ghost_clipping.torch, "clamp", lambda values, max: torch.ones_like(values))
    assert audit(8).largest_ratio > 1


class HalfNoise(NoiseSource):
    def normal(self, std: float, shape: Any) -> Any:
        return super().normal(std / 2, shape)


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
def test_statistics_of_a_worst_case_and_of_a_sabotage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poisson steps on the pair that the accountant is about, as in audits/test_poisson_training.py.

    Nobody moves the weights, so that every step is an independent draw of the same one.
    """
    monkeypatch.setattr("gratis.estimators.own_loop.epsilon_upper_bound", lambda *_, **__: 0.0)  # of one step, below
    squared = lambda outputs, targets: 0.5 * (outputs[:, 0] - targets) ** 2  # noqa: E731

    def draws(target: float, source: NoiseSource) -> np.ndarray:
        records, targets = np.zeros((4, 2), dtype=np.float32), np.zeros(4, dtype=np.float32)
        records[0, 0], targets[0] = 1.0, target
        monkeypatch.setattr("gratis.estimators.own_loop.noise_source", lambda *_, **__: source)
        module = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(module.weight)
        loop = loop_for(module, records, targets, 2000, loss=squared, batch_size=2, noise_multiplier=0.5)
        return np.array([-module.weight.grad[0, 0].item() for _ in iter(loop.step, 2000)])

    def advantage(source: Any) -> float:
        found = audit_scores(draws(np.nan, source(1)), draws(1e6, source(2)), proved_mu=float("inf"))
        return 1 - 2 * float(ndtr(-found.mu.low / 2))

    event = PoissonSubsampledGaussian(sampling_rate=0.5, noise_multiplier=0.5, steps=1, neighbouring="zero-out")
    proved = delta_upper_bound(account(event), epsilon=0.0)
    assert 0.8 * proved < advantage(NoiseSource.insecure) <= proved
    assert advantage(HalfNoise.insecure) > proved


def test_steps_are_counted_in_one_place(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies and forks of a loop would count their steps apart, under the same name in the ledger."""
    loop = loop_for(build_mlp([8, 6, 3], seed=1), steps=32, ledger=ledger, dataset="people")
    loop.step()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(GratisError, match="cannot be copied"):
            copied(loop)
    monkeypatch.setattr("gratis.estimators.private_loop.os.getpid", lambda: -1)
    for asked in (loop.step, loop.state_dict, loop.finish):
        with pytest.raises(GratisError, match="forked process"):
            asked()
    monkeypatch.undo()
    assert loop.step() == 2


def test_a_ledger_older_than_the_checkpoint_is_refused(ledger: Any, tmp_path: Any) -> None:
    """A ledger from a backup has forgotten steps: with or without forfeit, they are not released again."""
    loop = loop_for(build_mlp([8, 6, 3], seed=1), steps=16, ledger=ledger, dataset="people")
    loop.step()
    loop.state_dict()
    older = shutil.copytree(tmp_path / "l", tmp_path / "older") if (tmp_path / "l").is_dir() else shutil.copy(
        tmp_path / "l", tmp_path / "older"
    )  # fmt: skip
    for _ in range(8):
        loop.step()
    state = loop.state_dict()
    for forfeit in (False, True):
        again = loop_for(build_mlp([8, 6, 3], seed=1), steps=16, ledger=gratis.Ledger.open(older), dataset="people")
        with pytest.raises(GratisError, match="older than this checkpoint"):
            again.load_state_dict(state, forfeit=forfeit)


def test_a_hook_that_mixes_records_between_steps_is_found(ledger: Any) -> None:
    module = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    loop = loop_for(module, ledger=ledger, dataset="people")
    loop.step()
    loop.step()
    module[1].register_forward_hook(lambda _module, _inputs, outputs: outputs - outputs.mean(0))
    with pytest.raises(GratisError):
        loop.step()
    assert all(parameter.grad is None for parameter in module.parameters())


def test_the_usual_loss_does_not_raise_on_one_label() -> None:
    """torch's cross-entropy raises on a label that is no class: taken for ours, whose record then adds nothing."""
    wrong = Y.copy()
    wrong[5] = 7
    module = build_mlp([8, 6, 3], seed=1)
    assert loop_for(module, targets=wrong, loss=nn.CrossEntropyLoss(reduction="none")).step() == 1
    with pytest.raises(GratisError, match="function of its own"):
        loop_for(module, loss=nn.CrossEntropyLoss(label_smoothing=0.1))


def killed(ledger: Any, steps: int, **more: Any) -> Any:
    """A run that released some steps and was killed before it wrote a checkpoint: only the ledger knows of it."""
    loop = loop_for(build_mlp([8, 3]), ledger=ledger, dataset="people", **POISSON | more)
    for _ in range(steps):
        loop.step()
    return loop


def test_a_run_that_was_killed_before_its_first_checkpoint_goes_on(ledger: Any) -> None:
    old = killed(ledger, 3)
    claimed = ledger.claimed_steps(ledger.status("people").never_committed[0].id)
    assert claimed >= 3
    loop = loop_for(build_mlp([8, 3]), ledger=ledger, dataset="people", **POISSON)
    loop.take_over()
    assert loop.n_released == claimed  # what was claimed may have been released
    with pytest.raises(GratisError, match="before the first step"):
        loop.take_over()
    assert list(loop) == list(range(claimed + 1, 9))
    status = ledger.status("people")
    assert (status.reservations, status.never_committed) == (1, ())
    assert not verify_certificate(loop.certificate)
    # The old one, were it alive, releases nothing more; and nobody takes over what is finished.
    while old.n_released < claimed:
        old.step()  # of those that it had claimed
    with pytest.raises(GratisError, match="not committed yet"):
        old.step()
    with pytest.raises(GratisError, match="no unfinished runs"):
        loop_for(build_mlp([8, 3]), ledger=ledger, dataset="people", **POISSON).take_over()


def test_of_several_unfinished_runs_one_is_named(ledger: Any) -> None:
    killed(ledger, 1)
    killed(ledger, 2)
    first, second = (entry.id for entry in ledger.status("people").never_committed)
    loop = loop_for(build_mlp([8, 3]), ledger=ledger, dataset="people", **POISSON)
    with pytest.raises(GratisError, match=f"2 unfinished runs of this schedule: name one of {first}, {second}"):
        loop.take_over()
    other = loop_for(build_mlp([8, 3]), ledger=ledger, dataset="people", **POISSON | {"steps": 4})
    with pytest.raises(GratisError, match="of another run"):
        other.take_over(second)
    loop.take_over(second)
    assert loop.n_released == ledger.claimed_steps(second)
    with pytest.raises(GratisError, match="only a run with a ledger"):
        loop_for(build_mlp([8, 3]), **POISSON).take_over()


def test_the_certificate_is_bound_to_the_weights(ledger: Any, tmp_path: Path) -> None:
    module = build_mlp([8, 3], seed=1)
    module.register_buffer("seen", torch.ones(3, dtype=torch.bfloat16))
    loop = loop_for(module, steps=3, ledger=ledger, dataset="people")
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in loop:
        optimiser.step()
    certificate = loop.certificate
    assert certificate.released == arrays_digest(module_arrays(module))
    assert ledger.status("people").releases[0].released == certificate.released
    assert ledger.status("people").releases[0].model == "Sequential"
    certificate.write(tmp_path / "c.json")
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    torch.save({"module": module.state_dict(), "optimiser": optimiser.state_dict(), "step": 3}, tmp_path / "all.pt")
    verify = ["certificate", "verify", str(tmp_path / "c.json"), "--allow-insecure", "--model"]
    for name in ("weights.pt", "all.pt"):
        assert run([*verify, str(tmp_path / name)]) == 0
    optimiser.step()  # one step more, of the last gradient: another model
    torch.save(module.state_dict(), tmp_path / "other.pt")
    assert run([*verify, str(tmp_path / "other.pt")]) == 2
    torch.save([1], tmp_path / "list.pt")
    assert run([*verify, str(tmp_path / "list.pt")]) == 2
