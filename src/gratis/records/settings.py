"""Settings that a user may fix; what is left out is planned."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError

__all__ = ["Descent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """How full-batch private gradient descent is run: T, C, η, what is returned, how much noise, and where.

    steps : T.
    clip_norm : C, of a record's gradient (in the coordinates that the model descends in).
    learning_rate : η, or one for each step; needs `clip_norm` and, for a sequence, as many as `steps`.
    average : the mean of the last half of the iterates instead of the last one.
    noise : "exact", the least that the budget allows, or "paper", S0's Proposition 2.2 (two to three times as much).
    engine : "primal" or "dual", for random features.

    >>> Descent(steps=100, clip_norm=2.0).given
    ('steps', 'clip_norm')
    """

    steps: int | None = None
    clip_norm: float | None = None
    learning_rate: float | tuple[float, ...] | None = None
    average: bool | None = None
    noise: str = "exact"
    engine: str | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            object.__setattr__(self, "steps", check_count("steps", self.steps))
        if self.clip_norm is not None:
            object.__setattr__(self, "clip_norm", check_positive("clip_norm", self.clip_norm))
        rates = self.learning_rate
        if rates is not None:
            if isinstance(rates, (tuple, list)):
                if len(rates) != self.steps:
                    raise GratisError("learning_rate must be one number, or one for each of the steps given with it")
                checked: Any = tuple(check_positive("learning_rate", rate) for rate in rates)
            else:
                checked = check_positive("learning_rate", rates)
            object.__setattr__(self, "learning_rate", checked)
        if self.average not in (None, True, False):
            raise GratisError("average must be True or False")
        if self.noise not in ("exact", "paper"):
            raise GratisError(f"noise must be 'exact' or 'paper', got {self.noise!r}")
        if self.engine not in (None, "primal", "dual"):
            raise GratisError(f"engine must be 'primal' or 'dual', got {self.engine!r}")

    @property
    def given(self) -> tuple[str, ...]:
        """The names of what is not left to the planner."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)

    def refuse(self, model: str, *names: str) -> None:
        """Refuse settings that a model does not have."""
        foreign = [name for name in self.given if name in names]
        if foreign:
            raise GratisError(f"{model} has no setting {' or '.join(foreign)}")

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON: what is given."""
        return {name: value for name, value in asdict(self).items() if name in self.given}

    @classmethod
    def from_json(cls, data: Any) -> Descent:
        """Read what `to_json` wrote."""
        if not isinstance(data, dict) or not set(data) <= {field.name for field in fields(cls)}:
            raise GratisError("unknown settings of the descent")
        rates = data.get("learning_rate")
        return cls(**data | ({"learning_rate": tuple(rates)} if isinstance(rates, list) else {}))
