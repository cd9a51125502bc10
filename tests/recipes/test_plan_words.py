"""What a plan says before anything is spent."""

import pytest

from gratis import plan


@pytest.mark.parametrize("model", ["linear", "additive"])
def test_too_few_rows_for_a_scale_are_told_before(model: str) -> None:
    def doubted(rows: int) -> bool:
        words = plan(model, rows=rows, columns=3, epsilon=1.0, delta=1e-5).words()
        return any("order of magnitude" in sentence for sentence in words)

    assert doubted(100)
    assert not doubted(400)
