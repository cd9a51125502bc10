"""A pass that is fed batch by batch (`partial_fit`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.estimators.release import Release
from gratis.models.released_linear import ReleasedLinear
from gratis.recipes.linear import LinearRelease, in_original_units
from gratis.recipes.one_pass import OnePassLinear
from gratis.stages.one_pass import OnePasses

__all__ = ["PassInProgress"]


class PassInProgress:
    """The budget is reserved when the pass begins and stays spent if it never ends."""

    def __init__(self, recipe: OnePassLinear, release: Release) -> None:
        self.recipe, self._stages = recipe, recipe.stages
        self._features = recipe.reading.public_features(recipe.facts.columns)
        self._target = recipe.reading.public_target()
        self._trainer = OnePasses(
            self._stages.passes, self._stages.loss, n_features=recipe.facts.columns, noise=release.noise,
            fit_intercept=True, n_rows=recipe.facts.rows,
        )  # fmt: skip
        self.release = release.__enter__()

    @property
    def is_complete(self) -> bool:
        """Whether all declared rows were used."""
        return self._trainer.rows_seen == self.recipe.facts.rows

    def consume(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        """Use the next rows; refused as a whole if they would exceed the declared number."""
        self._trainer.consume(self._features.transform(X), self._target.transform(y[:, None])[:, 0])

    def finish(self) -> LinearRelease:
        """Release the parameters; the books are closed by whoever keeps them."""
        parameters = self._trainer.release()
        fit = ReleasedLinear(
            parameters=parameters.T, features=self._features, target=self._target, event=self._stages.event
        )
        return LinearRelease(fit, in_original_units(self._stages.plan.prediction, fit))
