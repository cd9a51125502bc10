"""A prediction lies inside its range; the rounding of a mean is no reason to refuse."""

import numpy as np
import pytest

from gratis.records.errors import GratisError
from gratis.records.predictions import Prediction


def predicted(value: float, low: float, high: float) -> Prediction:
    return Prediction(quantity="excess_risk", value=value, low=low, high=high, source="test")


@pytest.mark.parametrize("value", [0.00225, 1e300, 5e-324, -0.1, 0.0])
@pytest.mark.parametrize("members", [1, 3, 7, 12])
def test_mean_of_equal_members_is_inside(value: float, members: int) -> None:
    """The mean of twelve equal numbers may be an ulp above them (met in CI, after the noise had been drawn)."""
    risks = np.full(members, value / 2)
    made = predicted(float(np.sum(risks / members)), float(risks.min()), float(risks.max()))
    assert made.low <= made.value <= made.high
    one_up = predicted(float(np.nextafter(value, np.inf)), value, value)
    assert one_up.low == value
    assert one_up.high == one_up.value


@pytest.mark.parametrize("value", [-1e-6, 1 + 1e-6, 2.0])
def test_value_outside_is_refused(value: float) -> None:
    with pytest.raises(GratisError, match="inside its own range"):
        predicted(value, 0.0, 1.0)
