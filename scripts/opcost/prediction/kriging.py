"""Interpolation between tuples: a Gaussian process of fixed shape (kriging).

A value at a tuple resembles those of its neighbours: most those of the same kind, by their
distance in sizes; less those of the same form, of the same operator, and of any, by their distance
in work. The covariance of two tuples is the sum

    s^2 (sum over levels of w m(d / l)),  m(r) = (1 + sqrt(3) r) exp(-sqrt(3) r)

with Matern's function m of smoothness 3/2 (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, chapter 4.2). Weights w and lengths l, in octaves, are the same everywhere; s and
the noise follow from the data only by the errors of prediction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from opcost.prediction.features import Features

_LENGTH = 6.0
_ANY, _OPERATOR, _FORM, _KIND = 0.1, 0.3, 0.3, 0.3
"""The weights of the levels; their sum is one."""

_NOISE = 0.01
"""The variance of a value beside its neighbours, of noise and of kernels that change abruptly."""

Array = np.ndarray


def covariance(first: Sequence[Features], second: Sequence[Features]) -> Array:
    """The covariance of each pair, for s = 1."""
    work = [np.array([each.work for each in side]) for side in (first, second)]
    near = _matern(cdist(*work))
    found = _ANY * near + _OPERATOR * near * _equal(first, second, "operator")
    same_kind = _equal(first, second, "kind")
    for form in {each.form for each in first} & {each.form for each in second}:
        rows = [n for n, each in enumerate(first) if each.form == form]
        columns = [n for n, each in enumerate(second) if each.form == form]
        place = np.ix_(rows, columns)
        sizes = [
            np.array([side[n].sizes for n in chosen]).reshape(len(chosen), -1)
            for side, chosen in ((first, rows), (second, columns))
        ]
        found[place] += _matern(cdist(*sizes)) * (_FORM + _KIND * same_kind[place])
    return found


def _equal(first: Sequence[Features], second: Sequence[Features], name: str) -> Array:
    left, right = (np.array([getattr(each, name) for each in side]) for side in (first, second))
    return left[:, None] == right[None, :]


def _matern(distance: Array) -> Array:
    scaled = math.sqrt(3) * distance / _LENGTH
    return (1 + scaled) * np.exp(-scaled)


@dataclass(frozen=True)
class Surface:
    """Values at known tuples, and what follows for others."""

    known: Sequence[Features]
    mean: float
    factor: tuple[Array, bool]
    weights: Array

    @classmethod
    def through(cls, known: Sequence[Features], values: Array, noise: Array) -> "Surface":
        """The surface near these values, of which each has so much further variance for s = 1."""
        matrix = covariance(known, known) + np.diag(_NOISE + noise)
        factor = cho_factor(matrix)
        ones = cho_solve(factor, np.ones(len(known)))
        mean = float(ones @ values / ones.sum())
        return cls(known, mean, factor, cho_solve(factor, values - mean))

    def at(self, tuples: Sequence[Features]) -> tuple[Array, Array]:
        """The values at tuples, and their standard deviations for s = 1."""
        shared = covariance(tuples, self.known)
        explained = np.einsum("ij,ji->i", shared, cho_solve(self.factor, shared.T))
        variances = 1 + _NOISE - explained
        return self.mean + shared @ self.weights, np.sqrt(np.maximum(variances, _NOISE))

    @cached_property
    def _inverse(self) -> Array:
        return cho_solve(self.factor, np.eye(len(self.known)))

    def left_out(self, groups: Sequence[Array]) -> tuple[Array, Array]:
        """The errors, prediction minus value, at each known tuple if its group were unknown, and
        their standard deviations for s = 1 (Rasmussen and Williams, chapter 5.4.2).
        """
        inverse = self._inverse
        errors, deviations = np.full((2, len(self.known)), np.nan)
        for group in groups:
            block = np.linalg.inv(inverse[np.ix_(group, group)])
            errors[group] = -block @ self.weights[group]
            deviations[group] = np.sqrt(np.diag(block))
        return errors, deviations


def helpful(
    tuples: Sequence[Features], weights: Array, known: Sequence[Features], most: int
) -> list[tuple[int, float]]:
    """At most `most` of the tuples to measure besides the `known` ones, the most helpful first: the
    place of each, and the share that it removes of the sum of weight times variance over the
    tuples, given the earlier ones (Cohn, Neural network exploration using optimal experiment
    design, Neural Networks 9, 1996). One weight must be positive.
    """
    left = covariance(tuples, tuples)
    if known:
        shared = covariance(tuples, known)
        factor = cho_factor(covariance(known, known) + _NOISE * np.eye(len(known)))
        left -= shared @ cho_solve(factor, shared.T)
    total = weights @ np.diag(left)
    chosen: dict[int, float] = {}
    for _ in range(min(most, len(tuples))):
        variances = np.maximum(np.diag(left), 0) + _NOISE
        removed = weights @ left**2 / variances
        removed[list(chosen)] = -1
        best = int(removed.argmax())  # the pivot of a Cholesky decomposition
        chosen[best] = float(removed[best] / total)
        left -= np.outer(left[:, best], left[:, best] / variances[best])
    return list(chosen.items())
