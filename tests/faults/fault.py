"""What a fault is: a number, what is done, what should happen, and a function that does it."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.study import Study

GOOD, POOR, BAD, BY_HAND = "good", "poor", "BAD", "by hand"


@dataclass(frozen=True)
class Found:
    """What happened, and what to think of it."""

    verdict: str
    text: str


@dataclass(frozen=True)
class Fault:
    """A fault; `attempt` tries it on a study of its own."""

    number: str
    what: str
    expected: str
    attempt: Callable[[Study], Found]
    measured: bool = True
    """Whether it needs a study that has rows."""

    @property
    def order(self) -> tuple[int, int]:
        """Sorts faults by their numbers: 2.10 comes after 2.9."""
        group, _, member = self.number.partition(".")
        return int(group), int(member)


FAULTS: list[Fault] = []
"""All faults, in the order in which their modules are imported."""

REFUSED = "refused; says what is wrong, where, and what to do"


def fault(number: str, what: str, expected: str = REFUSED, measured: bool = True) -> Callable:
    """Make a function that tries a fault one of the faults."""

    def register(attempt: Callable[[Study], Found]) -> Callable[[Study], Found]:
        FAULTS.append(Fault(number, what, expected, attempt, measured=measured))
        return attempt

    return register
