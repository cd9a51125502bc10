"""Sketched tangent features: derivatives of the score in directions that the weights can be moved in."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gratis_papers.s4_tasks import TinyTransformer  # noqa: E402
from gratis_papers.tangent_features import TangentSketch, log_odds  # noqa: E402


def start() -> tuple[object, TangentSketch, object]:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = TinyTransformer().double().eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    drawn = TangentSketch.draw(module, 3)
    factors = tuple((left.double(), right.double()) for left, right in drawn.factors)
    return module, TangentSketch(drawn.names, factors), torch.randn(6, 8, 8, generator=generator).double()


def test_features_are_the_derivatives_of_the_log_odds() -> None:
    module, sketch, X = start()
    features, scores = sketch.features(module, X)
    assert features.shape == (6, sketch.size) == (6, 4 * 9)
    with torch.no_grad():
        assert scores == pytest.approx(log_odds(module(X)).numpy())
    way, h = np.random.default_rng(1).standard_normal(sketch.size), 1e-5
    with torch.no_grad():
        ahead, behind = (log_odds(sketch.moved(copy.deepcopy(module), s * h * way)(X)).numpy() for s in (1, -1))
    assert features @ way == pytest.approx((ahead - behind) / (2 * h), rel=1e-5, abs=1e-9)


def test_records_do_not_depend_on_their_batch_and_parts_are_found_again(tmp_path: Path) -> None:
    module, sketch, X = start()
    whole, scores = sketch.features(module, X)
    parts, again = sketch.all_features(module, X, 2, kept=tmp_path, part=4)
    assert parts == pytest.approx(whole, abs=1e-9)
    assert again == pytest.approx(scores)
    assert len(list(tmp_path.glob("tangent-*.npz"))) == 2
    broken = copy.deepcopy(module)
    broken.embed = None
    found, _ = sketch.all_features(broken, X, 2, kept=tmp_path, part=4)  # nothing is computed
    assert found == pytest.approx(whole, rel=2e-3, abs=1e-4)  # kept in half precision
