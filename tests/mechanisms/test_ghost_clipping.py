"""Clipped gradient sums of networks: equal to per-record gradients, bounded for every record, refused when in doubt."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gratis.mechanisms import layer_rules  # noqa: E402
from gratis.mechanisms.block_sums import BlockSums  # noqa: E402
from gratis.mechanisms.ghost_clipping import ClippedGradientSum, cross_entropy  # noqa: E402
from gratis.numerics.network_rounding import BLOCK, GROUP, network_rounding_inflation  # noqa: E402
from gratis.records.errors import GratisError  # noqa: E402


class Scaled(nn.Module):
    """Owns a parameter and has children: no rule, so per-record gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return torch.tanh(self.inner(x * self.gain))


class Twice(nn.Module):
    """One layer used twice, and a weight shared by a sequence layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.relu(self.layer(torch.relu(self.layer(x)))))


class Tied(nn.Module):
    """Embedding and output layer share their weight: two kinds of use of one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5)
        self.out = nn.Linear(5, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x):
        return self.out(torch.tanh(self.table(x)).mean(dim=1))


class Attention(nn.Module):
    """Token embedding, multi-head attention (no rule, a tuple of outputs) and layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8, padding_idx=0)
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
        self.query, self.norm, self.out = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.table(x)
        h = h + torch.softmax(self.query(h) @ h.mT, dim=-1) @ h
        h = h + self.mix(h, h, h, need_weights=False)[0]
        return self.out(self.norm(h)).mean(dim=1)


def tokens(vocabulary: int):
    return lambda m, g: torch.randint(vocabulary, (m, 5), generator=g)


def dense(*shape: int):
    return lambda m, g: torch.randn(m, *shape, generator=g)


NETWORKS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(inplace=True), nn.Linear(9, 3, bias=False)), dense(6)),
    "sequence-gram": (
        lambda: nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Flatten(), nn.Linear(150, 3)),
        dense(3, 40),
    ),
    "sequence-direct": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Flatten(), nn.Linear(80, 3)),
        dense(20, 3),
    ),
    "conv2d": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 5, (1, 2)),
            nn.GroupNorm(5, 5),
            nn.Flatten(),
            nn.Linear(5 * 2, 3),
        ),
        dense(4, 8, 8),
    ),
    "conv-gram": (
        lambda: nn.Sequential(nn.Conv2d(40, 60, 3), nn.Tanh(), nn.Flatten(), nn.Linear(240, 3)),
        dense(40, 4, 4),
    ),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3, dilation=2), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)),
        dense(2, 10),
    ),
    "conv-same": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding="same"), nn.Flatten(), nn.Linear(48, 3)),
        dense(2, 4, 4),
    ),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.PReLU(), nn.Flatten(), nn.Linear(48, 3)),
        dense(2, 3, 3),
    ),
    "layer-norm": (lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)), dense(6)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(4, 6), nn.Flatten(), nn.Linear(30, 3)), tokens(4)),
    "own-parameter": (lambda: nn.Sequential(Scaled(), nn.Linear(6, 3)), dense(6)),
    "used-twice": (Twice, dense(6)),
    "tied": (Tied, tokens(7)),
    "attention": (Attention, tokens(11)),
}


def build(name: str, seed: int = 0):
    torch.manual_seed(seed)
    make, draw = NETWORKS[name]
    module = make()
    generator = torch.Generator().manual_seed(seed + 1)
    inputs = draw(12, generator)
    with torch.no_grad():
        classes = module(inputs).shape[1]
    return module, inputs, torch.randint(classes, (12,), generator=generator)


def reference(module, inputs, targets, clip_norm: float) -> tuple[np.ndarray, np.ndarray]:
    """Clipped rows and norms by torch.func, a route that shares no code."""
    values = {name: p.detach() for name, p in module.named_parameters()}

    def loss(parameters, x, y):
        return cross_entropy(torch.func.functional_call(module, parameters, (x[None],)), y[None])[0]

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        rows = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(values, inputs, targets)
    flat = torch.cat([rows[name].flatten(1) for name, _ in module.named_parameters()], dim=1).double().numpy()
    norms = np.linalg.norm(flat, axis=1)
    return flat * np.minimum(1, clip_norm / norms)[:, None], norms


@pytest.mark.parametrize("name", NETWORKS)
def test_sum_equals_per_record_gradients(name: str) -> None:
    module, inputs, targets = build(name)
    clip_norm = float(np.median(reference(module, inputs, targets, 1.0)[1]))
    rows, norms = reference(module, inputs, targets, clip_norm)
    assert norms.min() < clip_norm < norms.max()
    gradient = ClippedGradientSum(module, clip_norm=clip_norm, micro_batch=5)
    gradient.check(inputs, targets)
    expected = rows.sum(axis=0)
    np.testing.assert_allclose(gradient(inputs, targets), expected, rtol=0, atol=2e-4 * np.abs(expected).max())
    assert np.linalg.norm(gradient(inputs, targets) - expected) < 2e-5 * clip_norm * len(inputs)
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


def test_the_gram_and_direct_routes_are_both_taken() -> None:
    assert layer_rules.MatrixUse(torch.ones(1, 1, 3, 40), torch.ones(1, 1, 3, 50)).gram
    assert not layer_rules.MatrixUse(torch.ones(1, 1, 20, 3), torch.ones(1, 1, 20, 4)).gram


@pytest.mark.parametrize("name", ["mlp", "sequence-gram", "conv2d", "tied", "own-parameter"])
@pytest.mark.parametrize("kappa", [1, 2])
def test_sensitivity_on_neighbours(name: str, kappa: int) -> None:
    """An outlying record is exchanged (κ=2) or made void (κ=1): the sum moves at most κC(1 + inflation)."""
    module, inputs, targets = build(name)
    clip_norm = 0.05
    gradient = ClippedGradientSum(module, clip_norm=clip_norm)
    bound = kappa * clip_norm * network_rounding_inflation(len(inputs), sensitivity=kappa)
    base = gradient(inputs, targets)
    moves = []
    for factor in (1.0, -30.0, 1e4):
        other, labels = inputs.clone(), targets.clone()
        other[3] = inputs[4] * factor if inputs.is_floating_point() else inputs[4]
        labels[3] = -1 if kappa == 1 else (targets[3] + 1) % 3
        moves.append(np.linalg.norm(gradient(other, labels) - base))
    assert max(moves) <= bound
    assert max(moves) > 0.3 * clip_norm, "the neighbours must move the sum, or the test shows nothing"


def test_sensitivity_of_a_large_float32_sum() -> None:
    """Thousands of aligned float32 terms: the exchanged record moves the sum by 2C, rounding adds next to nothing."""
    torch.manual_seed(0)
    module = nn.Linear(40, 2, bias=False)
    X, y = torch.rand(6000, 40) + 1, torch.zeros(6000, dtype=torch.long)
    gradient = ClippedGradientSum(module, clip_norm=0.01)
    base = gradient(X, y)
    assert np.linalg.norm(base) > 0.9 * 6000 * 0.01
    for record in (0, 700, 5999):
        labels = y.clone()
        labels[record] = 1
        moved = np.linalg.norm(gradient(X, labels) - base) / 0.01
        assert 1.99 < moved <= 2 * network_rounding_inflation(6000, sensitivity=2)


@pytest.mark.parametrize("value", [1e3, -1e30, np.nan])
def test_a_void_record_does_not_change_a_bit_of_the_others(value: float) -> None:
    """The rounding bound rests on this: what other records add does not depend on this record's values."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(50, 64), nn.ReLU(), nn.Linear(64, 3))
    X, y = torch.randn(1200, 50), torch.randint(3, (1200,))
    y[5] = -1
    gradient = ClippedGradientSum(module, clip_norm=0.3)
    base = gradient(X, y)
    X[5] = value
    assert np.array_equal(gradient(X, y), base)


def test_without_clipping_the_same_neighbours_break_the_bound() -> None:
    """Negative control: the test above would notice a missing clip."""
    module, inputs, targets = build("mlp")
    gradient = ClippedGradientSum(module, clip_norm=1e9)
    other = inputs.clone()
    other[3] *= 1e4
    assert np.linalg.norm(gradient(other, targets) - gradient(inputs, targets)) > 2 * 0.05


def test_micro_batches_do_not_change_the_sum() -> None:
    module, inputs, targets = build("attention")
    sums = [ClippedGradientSum(module, clip_norm=0.5, micro_batch=m)(inputs, targets) for m in (1, 5, 12, 100)]
    for other in sums[1:]:
        np.testing.assert_allclose(other, sums[0], atol=1e-6)


def test_rows_choose_records() -> None:
    module, inputs, targets = build("mlp")
    gradient = ClippedGradientSum(module, clip_norm=0.5)
    rows = np.array([1, 4, 7])
    np.testing.assert_allclose(gradient(inputs, targets, rows), gradient(inputs[rows], targets[rows]), atol=1e-7)
    assert not gradient(inputs, targets, rows[:0]).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_non_finite_records_add_nothing_and_spoil_nobody(value: float) -> None:
    module, inputs, targets = build("mlp")
    gradient = ClippedGradientSum(module, clip_norm=0.5)
    spoiled = inputs.clone()
    spoiled[2, 1] = value
    others = np.delete(np.arange(12), 2)
    np.testing.assert_allclose(gradient(spoiled, targets), gradient(inputs, targets, others), atol=1e-6)


class Positioned(nn.Module):
    """A table of positions, read without records, and a table of tokens; both frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(4, 6), nn.Embedding(5, 6)
        self.out = nn.Linear(30, 3)
        for table in (self.token, self.position):
            table.weight.requires_grad_(False)

    def forward(self, x):
        return self.out((self.token(x) + self.position(torch.arange(5))).flatten(1))


class Wrapped(nn.Module):
    """A table inside a module without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.gain = nn.Embedding(4, 6), nn.Parameter(torch.ones(6))
        self.out = nn.Linear(30, 3)

    def forward(self, x):
        return self.out((self.table(x) * self.gain).flatten(1))


@pytest.mark.parametrize("make", [NETWORKS["embedding"][0], Positioned, Wrapped])
def test_labels_out_of_range_add_nothing_and_tokens_count_as_the_first(make) -> None:
    _, inputs, targets = build("embedding")
    module = make()
    gradient = ClippedGradientSum(module, clip_norm=0.5)
    inputs[0, 3] = 0
    expected = gradient(inputs, targets, np.delete(np.arange(12), 1))
    inputs[0, 3], targets[1] = 99, 17
    np.testing.assert_allclose(gradient(inputs, targets), expected, atol=1e-6)


@pytest.mark.parametrize("layout", ["records", "flat", "transposed"])
def test_an_index_out_of_range_touches_its_own_record_alone(layout: str) -> None:
    """A frozen table may be read in any layout, also one in which the position looks like a record."""

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)
            self.table.weight.requires_grad_(False)
            self.head = nn.Linear(4 * 6, 3)

        def forward(self, x):
            if layout == "flat":
                read = self.table(x.reshape(-1)).reshape(len(x), 6, 4)
            else:
                read = self.table(x) if layout == "records" else self.table(x.T).permute(1, 0, 2)
            return self.head(read.reshape(len(x), -1))

    torch.manual_seed(0)
    gradient = ClippedGradientSum(Reader(), clip_norm=1.0)
    inputs, targets = torch.randint(10, (6, 6)), torch.randint(3, (6,))
    gradient.check(inputs, targets)
    before = gradient(inputs, targets)
    inputs[0] = 99
    assert 1e-3 < np.linalg.norm(gradient(inputs, targets) - before) <= 2 * (1 + 1e-6)


def test_an_infinitely_good_loss_adds_nothing() -> None:
    module = nn.Linear(4, 1, bias=False)
    gradient = ClippedGradientSum(module, lambda out, y: out[:, 0] + y, clip_norm=0.1)
    assert not gradient(torch.ones(1, 4), torch.tensor([-torch.inf])).any()


def test_tiny_inputs_with_huge_weights_are_still_clipped() -> None:
    """Squares of 1e-25 vanish in float32; a norm computed as 0 would leave the record unclipped."""
    module = nn.Linear(4, 1, bias=False)
    gradient = ClippedGradientSum(module, lambda out, y: 1e30 * out[:, 0], clip_norm=1e-3)
    moved = np.linalg.norm(gradient(torch.full((1, 4), 1e-25), torch.zeros(1)))
    assert moved <= 1e-3


@pytest.mark.parametrize("size", [1e15, 1e18, 1e19, 1e25])
def test_enormous_gradients_are_clipped_or_add_nothing(size: float) -> None:
    module = nn.Linear(4, 1, bias=False)
    gradient = ClippedGradientSum(module, lambda out, y: size * out[:, 0], clip_norm=0.1)
    assert np.linalg.norm(gradient(torch.full((1, 4), size), torch.zeros(1))) <= 0.1 * (1 + 1e-6)


def test_float32_sums_stay_inside_the_inflation() -> None:
    torch.manual_seed(0)
    module = nn.Linear(30, 4)
    X, y = torch.rand(3000, 30), torch.zeros(3000, dtype=torch.long)
    single = ClippedGradientSum(module, clip_norm=1.0)(X, y)
    exact = ClippedGradientSum(module.double(), clip_norm=1.0)(X.double(), y)
    allowed = 2.0 * (network_rounding_inflation(3000, sensitivity=2.0) - 1)
    # Forward errors are not part of the bound, so the comparison is of orders: far inside, and not zero.
    assert 0 < np.linalg.norm(single - exact) < allowed


class Weak(nn.Module):
    """The weight outside its layer matters little in all, but it is wholly missed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x) + 1e-3 * torch.nn.functional.linear(x, self.other.weight)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.layer.weight)


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x - x.mean(dim=0))


class Transposed(nn.Module):
    """Records along the second dimension inside: right only when nobody looks at records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).transpose(0, 1).mean(dim=1)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        self.seen += x.detach().sum(dim=0)
        return self.layer(x)


class InPlace(nn.Module):
    """Changes a layer's input after the layer read it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer = nn.Identity(), nn.Linear(6, 3)

    def forward(self, x):
        h = x * 2
        out = self.layer(h)
        h.mul_(3)
        return out


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (Weak, (6,)),
        (Functional, (6,)),
        (Mixing, (6,)),
        (Transposed, (2, 3)),
        (Transposed, (3, 3)),
        (Counting, (6,)),
        (InPlace, (6,)),
    ],
)
def test_modules_that_are_not_understood_are_refused(module, shape) -> None:
    gradient = ClippedGradientSum(module(), clip_norm=1.0)
    with pytest.raises(GratisError):
        gradient.check(torch.zeros(4, *shape), torch.zeros(4, dtype=torch.long))


class Bag(nn.EmbeddingBag):
    pass


class Fragile(nn.Module):
    """Quotes the records that it does not like."""

    def __init__(self, limit: float, error: type[BaseException]) -> None:
        super().__init__()
        self.layer, self.limit, self.error = nn.Linear(4, 2), limit, error

    def forward(self, x):
        if bool((x.abs() > self.limit).any()):
            raise self.error(f"the value {x.max().item():g} is too large")
        return self.layer(x)


def spoilt() -> tuple[torch.Tensor, torch.Tensor]:
    X = torch.zeros(6, 4)
    X[2, 1] = 999
    return X, torch.zeros(6, dtype=torch.long)


@pytest.mark.parametrize("where", ["module", "loss"])
def test_errors_on_records_lose_their_words(where: str) -> None:
    X, y = spoilt()
    if where == "module":
        gradient = ClippedGradientSum(Fragile(100, RuntimeError), clip_norm=1.0)
    else:
        y[2] = 999
        gradient = ClippedGradientSum(nn.Linear(4, 2), nn.CrossEntropyLoss(reduction="none"), clip_norm=1.0)
    gradient.check(X, y)
    with pytest.raises(GratisError, match="failed on a micro-batch of records; nothing of its message") as caught:
        gradient(X, y)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "999" not in str(caught.value)
    assert all(p.requires_grad for p in gradient.parameters)


@pytest.mark.parametrize("error", [KeyboardInterrupt, GratisError])
def test_interrupts_and_our_own_errors_pass(error: type[BaseException]) -> None:
    with pytest.raises(error, match="too large"):
        ClippedGradientSum(Fragile(100, error), clip_norm=1.0)(*spoilt())


def test_errors_on_synthetic_records_keep_their_words() -> None:
    with pytest.raises(GratisError, match=r"synthetic records of this shape: the value .* is too large"):
        ClippedGradientSum(Fragile(0.001, RuntimeError), clip_norm=1.0).check(*spoilt())

    def inside_vmap(outputs, targets):
        """Fails only where gradients of records are taken together."""
        if len(outputs) > 1:
            raise RuntimeError("more than one")
        return outputs[:, 0]

    with pytest.raises(GratisError, match="synthetic records of this shape: more than one"):
        ClippedGradientSum(nn.Linear(4, 2), inside_vmap, clip_norm=1.0).check(*spoilt())


@pytest.mark.parametrize("y", [np.zeros(6), torch.zeros(6)])
def test_labels_that_are_floats_are_refused_in_words(y) -> None:
    with pytest.raises(GratisError, match="labels for cross-entropy must be whole numbers"):
        ClippedGradientSum(nn.Linear(4, 2), clip_norm=1.0).check(torch.zeros(6, 4), y)


def test_integer_images_are_refused_in_words_unless_the_module_converts_them() -> None:
    X, y = np.zeros((6, 4), dtype=np.uint8), np.zeros(6, dtype=int)
    for values in (X, X.astype(object), torch.from_numpy(X)):
        with pytest.raises(GratisError, match="not floating point"):
            ClippedGradientSum(nn.Linear(4, 2), clip_norm=1.0).check(values, y)

    class Converts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x / 255)

    ClippedGradientSum(Converts(), clip_norm=1.0).check(X, y)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), "mixes records"),
        (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.1)), "Dropout"),
        (nn.LazyLinear(3), "lazy"),
        (nn.ReLU(), "no trainable"),
        (nn.Linear(3, 3).half(), "float32"),
        (nn.Embedding(3, 3, max_norm=1.0), "max_norm"),
        (nn.Sequential(nn.EmbeddingBag(50, 4), nn.Linear(4, 2)), "EmbeddingBag is not supported.*use an Embedding"),
        (Bag(50, 4), "Bag is not supported"),
        ("a network", "torch.nn.Module, got a str"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_refusals_come_at_once(module, words: str) -> None:
    with pytest.raises(GratisError, match=words):
        ClippedGradientSum(module, clip_norm=1.0)


def test_batch_norm_in_evaluation_mode_is_a_record_wise_map() -> None:
    module = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)).eval()
    ClippedGradientSum(module, clip_norm=1.0).check(torch.zeros(4, 6), torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, 1e-13, 1e13, float("inf"), float("nan")])
def test_clip_norms_that_float32_cannot_hold_are_refused(clip_norm: float) -> None:
    with pytest.raises(GratisError, match="clip_norm"):
        ClippedGradientSum(nn.Linear(6, 3), clip_norm=clip_norm)


def test_a_mean_loss_is_refused() -> None:
    gradient = ClippedGradientSum(nn.Linear(6, 3), nn.CrossEntropyLoss(), clip_norm=1.0)
    with pytest.raises(GratisError, match="one value for each record"):
        gradient.check(torch.zeros(4, 6), torch.zeros(4, dtype=torch.long))


def test_frozen_parameters_get_no_gradient() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    module[0].weight.requires_grad_(False)
    gradient = ClippedGradientSum(module, clip_norm=1.0)
    assert gradient.size == 5 + 18
    gradient.check(torch.zeros(4, 6), torch.zeros(4, dtype=torch.long))
    assert not module[0].weight.requires_grad


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(x).float()


def test_half_precision_is_refused() -> None:
    """Its sums round far more than the proof pays for, and overflow."""
    X, y = torch.zeros(4, 4), torch.zeros(4, dtype=torch.long)
    with pytest.raises(GratisError, match="half precision"):
        ClippedGradientSum(Autocast(), clip_norm=1.0).check(X, y)
    gradient = ClippedGradientSum(nn.Linear(4, 2), clip_norm=1.0)
    gradient.check(X, y)
    with pytest.raises(GratisError, match="half precision"), torch.autocast("cpu", dtype=torch.bfloat16):
        gradient(X, y)
    try:
        torch.set_float32_matmul_precision("medium")
        with pytest.raises(GratisError, match="half precision"):
            gradient(X, y)
    finally:
        torch.set_float32_matmul_precision("highest")
    gradient(X, y)


@pytest.mark.parametrize("shape", [(1, 50), (20, 1), (7, 5)])
def test_a_dropped_record_leaves_other_blocks_alone(shape: tuple[int, int]) -> None:
    """To the bit, whatever the layout of the inputs: products of other blocks must not depend on it."""
    k, o = shape
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(4 * BLOCK, 3 * k, generator=generator)[:, :k].reshape(-1, 1, 1, k)
    b = torch.randn(4 * BLOCK, 2 * o, generator=generator)[:, :o].reshape(-1, 1, 1, o)
    weights = torch.ones(4 * BLOCK, dtype=torch.float64)
    weights[:BLOCK] = 0
    totals = [np.zeros(k * o), np.zeros(k * o)]
    for total, bad in zip(totals, (False, True), strict=True):
        use = layer_rules.MatrixUse(a, b)
        if bad:
            use.drop(torch.arange(4 * BLOCK) == 0)
        use.add_weighted_sum(weights, total, BlockSums())
    assert np.array_equal(*totals)


def test_memory_addresses_change_no_bit() -> None:
    torch.manual_seed(0)
    gradient = ClippedGradientSum(nn.Linear(5, 3), clip_norm=1.0)
    room = np.random.default_rng(0).standard_normal(600 * 5 + 16).astype(np.float32)
    y = np.arange(600) % 3
    found = []
    for offset in range(16):
        X = room[offset : offset + 3000]
        X[:] = np.random.default_rng(1).standard_normal(3000)
        found.append(gradient(X.reshape(600, 5), y))
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize("threads", [1, 2])
def test_block_sums_are_products_of_blocks_added_in_float64(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the proof of rounding assumes; buffers are reused for other shapes and types without leaving a trace."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    sums = BlockSums()
    generator = torch.Generator().manual_seed(0)
    for m, o, k, dtype in ((2700, 30, 20, torch.float32), (700, 3, 4, torch.float64), (1, 50, 20, torch.float32)):
        a, b, weights = (torch.randn(m, c, generator=generator, dtype=dtype) for c in (k, o, 1))
        total = np.ones(o * k)
        sums.add_weighted_products(total, b, a, weights)
        expected = np.ones(o * k)
        for rows in (slice(start, start + BLOCK) for start in range(0, m, BLOCK)):
            expected += ((b[rows] * weights[rows]).mT @ a[rows]).flatten().numpy()
        assert np.abs(total - expected).max() < (1e-4 if dtype == torch.float32 else 1e-12)
        exact = 1.0 + ((b * weights).double().mT @ a.double()).flatten().numpy()
        assert np.abs(total - exact).max() < (1e-4 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_groups_of_blocks_meet_in_float64(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of sum 2²⁴ and one of sum 1: float32 between groups would lose the 1."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    m = (GROUP + 1) * BLOCK
    b, total = torch.zeros(m, 1), np.zeros(1)
    b[0], b[GROUP * BLOCK] = 2.0**24, 1.0
    BlockSums().add_weighted_products(total, b, torch.ones(m, 1), torch.ones(m, 1))
    assert total[0] == 2.0**24 + 1
    assert float(b.sum()) == 2.0**24  # negative control


def test_two_threads_bound_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with one thread: the sum of one record's clipped gradient has norm C."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    X, y = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32), np.arange(40) % 3
    gradient = ClippedGradientSum(module, clip_norm=1e-3, micro_batch=7)
    whole = gradient(X, y)
    singles = np.array([gradient(X[i : i + 1], y[i : i + 1]) for i in range(40)])
    np.testing.assert_allclose(whole, singles.sum(axis=0), atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(singles, axis=1), 1e-3, rtol=1e-5)
