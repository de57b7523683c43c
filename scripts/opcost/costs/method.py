"""The method's own error: how far a sum over operators lies from the whole model, beyond what the
uncertainty of their measurements explains.

It is estimated from the models of a target that were measured end to end, training apart from
inference, as a random effect about zero:

    ln(sum / whole) ~ normal(0, sd^2 + standard error^2)

The distribution of `sd` given these models is computed on a grid. A few models hardly tell a
standard deviation, so its prior is weakly informative (Röver et al., On weakly informative prior
distributions for the heterogeneity parameter in Bayesian random-effects meta-analysis, Research
Synthesis Methods 12, 2021). The error of a further model is then a mixture of normal distributions,
for which the Student's distribution of the same variance and kurtosis stands.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from opcost.rows.quantities import Quantity
from opcost.statistics import Estimate, student_97_5

LEAST_MODELS = 2
"""One model does not tell how models differ."""

# ASSUME that methods err about as on the machines of docs/explanation/uncertainty.md and, in
# training, of docs/explanation/training.md.
_USUAL_SD, _USUAL_TRAINING_SD, _USUAL_FACTOR = 0.04, 0.06, 2.0
_IN_TRAINING = " (training)"
_SDS = np.geomspace(1e-3, 1.0, 200)
_LEAST_SPREAD = 1e-6
"""The least relative variance of what is possible, where only one of these is."""


class Difference(NamedTuple):
    """How far the sum of one model lies from its whole, and the standard error of that, relative to
    the whole.
    """

    value: float
    error: float


@dataclass(frozen=True)
class MethodError:
    """The relative standard deviation of the method's error, the degrees of freedom of its
    distribution, and how many models tell it.
    """

    sd: float
    degrees_of_freedom: float
    models: int

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval, relative."""
        n = self.degrees_of_freedom
        return student_97_5(n) * self.sd * math.sqrt((n - 2) / n)

    @property
    def factor(self) -> Estimate:
        """By what a sum is multiplied to become the time or energy of the model."""
        half = self.half_width
        return Estimate(1.0, 1.0 - half, 1.0 + half, self.degrees_of_freedom)


def labelled(model: str, trained: bool) -> str:
    """The name of a model in `method_models`, marked if it is trained."""
    return model + _IN_TRAINING * trained


def method_error(differences: Sequence[Difference], trained: bool = False) -> MethodError | None:
    """The method's error, estimated from models of one mode.

    Of fewer than `LEAST_MODELS`, None in inference; in training, which errs more, about the usual.
    """
    if len(differences) < LEAST_MODELS and not trained:
        return None
    logs = np.array([math.log1p(each.value) for each in differences]).reshape(-1, 1)
    variances = np.array([each.error**2 for each in differences]).reshape(-1, 1) + _SDS**2
    usual_sd = _USUAL_TRAINING_SD if trained else _USUAL_SD
    unusual = np.log(_SDS / usual_sd) / math.log(_USUAL_FACTOR)
    likelihood = -(np.log(variances) + logs**2 / variances).sum(axis=0) / 2 - unusual**2 / 2
    weights = np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    variance, fourth = float(weights @ _SDS**2), float(weights @ _SDS**4)
    apart = max(fourth / variance**2 - 1, _LEAST_SPREAD)
    degrees = 4 + 2 / apart
    return MethodError(math.sqrt(variance), degrees, len(differences))


def method_in(
    row: Mapping[str, Any], quantity: Quantity, model: str, trained: bool = False
) -> MethodError | None:
    """The method's error on the target of a row, from the other models of this one's mode."""
    columns = (row[name] or () for name in ("method_models", *_columns(quantity)))
    found = [
        Difference(value, error)
        for name, value, error in zip(*columns, strict=False)
        if name.endswith(_IN_TRAINING) == trained and name != labelled(model, trained)
        if value is not None and error is not None
    ]
    return method_error(found, trained)


def method_columns(
    models: Sequence[str], differences: Mapping[Quantity, Sequence[Difference | None]]
) -> dict[str, Any]:
    """The columns of a target's rows, from the differences of its labelled models, None where
    unknown.
    """
    columns: dict[str, Any] = {"method_models": [*models]}
    for quantity, found in differences.items():
        values, errors = _columns(quantity)
        columns[values] = [each and each.value for each in found]
        columns[errors] = [each and each.error for each in found]
        error = method_error(
            [
                each
                for model, each in zip(models, found, strict=True)
                if each is not None and not model.endswith(_IN_TRAINING)
            ]
        )
        columns[quantity.method_sd] = error and error.sd
        columns[quantity.method_degrees] = error and error.degrees_of_freedom
    return columns


def _columns(quantity: Quantity) -> tuple[str, str]:
    return quantity.method_differences, quantity.method_errors
