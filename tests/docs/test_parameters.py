"""Every estimator documents every parameter, in its own docstring: type, default, meaning."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import pytest
from sklearn.base import BaseEstimator

import gratis
from gratis.estimators.private_fit import PrivateFit

ESTIMATORS = [
    found
    for found in (getattr(gratis, name) for name in gratis.__all__)
    if inspect.isclass(found) and issubclass(found, BaseEstimator)
] + [PrivateFit]
# Names, type, defaults; then at least one indented line of meaning.
ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (\S.*), default (.+)\n    +\S", re.MULTILINE)


def documented(docstring: str) -> dict[str, Any]:
    """Names and defaults that a docstring states; names that share an entry have their defaults in the same order."""
    found: dict[str, Any] = {}
    for names, _, defaults in ENTRY.findall(inspect.cleandoc(docstring)):
        values = [ast.literal_eval(value) for value in defaults.split(" and ")]
        found |= dict(zip(names.split(", "), values, strict=True))
    return found


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_every_parameter_has_type_default_and_meaning(estimator: type[PrivateFit]) -> None:
    assert documented(estimator.__doc__ or "") == estimator().get_params()


def test_all_public_estimators_were_looked_at() -> None:
    assert sum(name.startswith("DP") for name in gratis.__all__) == len(ESTIMATORS) - 1 >= 7


def test_what_is_missing_would_be_noticed() -> None:
    whole = 'epsilon, delta : float, default 1.0 and 1e-5\n    The budget.\nkind : str, default "a"\n    Which.\n'
    assert documented(whole) == {"epsilon": 1.0, "delta": 1e-5, "kind": "a"}
    assert documented(whole.replace("    Which.", "")).keys() == {"epsilon", "delta"}
    assert documented(whole.replace(", default", "")) == {}
