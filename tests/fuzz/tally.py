"""Cases of one kind, tried one after the other: how many, and what came of them."""

import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opcost.errors import OpcostError

Case = Callable[[random.Random], str | None]
"""Tries something drawn at random: raises what opcost raises, or says which wrong value passed."""
Kind = Callable[[Path], Case]
"""Prepares a case in a folder of its own."""

MAX_EXAMPLES = 20


@dataclass
class Tally:
    """What came of cases: refused in words, without effect, a traceback, a value that passed."""

    kind: str
    cases: int = 0
    refused: int = 0
    tracebacks: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)

    def try_once(self, case: Case, generator: random.Random) -> None:
        """Try one case, and count what comes of it."""
        self.cases += 1
        try:
            wrong = case(generator)
        except OpcostError:
            self.refused += 1
        except Exception:
            self.tracebacks.append(_last_lines())
        else:
            if wrong is not None:
                self.passed.append(wrong)

    def lines(self) -> list[str]:
        """For people: the counts, then an example of each thing that went wrong."""
        counts = f"{len(self.tracebacks)} tracebacks, {len(self.passed)} wrong values passed"
        head = f"{self.kind:16} {self.cases:8} cases, {self.refused} refused, {counts}"
        places = {text.partition(":")[0]: text for text in self.tracebacks}
        examples = [*places.values(), *dict.fromkeys(self.passed)]
        return [head, *(f"    {example}" for example in examples[:MAX_EXAMPLES])]


def fuzz(name: str, kind: Kind, folder: Path, seconds: float, seed: Any = 0) -> Tally:
    """Try cases of a kind for so many seconds; equal seeds draw equal cases."""
    generator, tally = random.Random(f"{name} {seed}"), Tally(name)
    case = kind(folder)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tally.try_once(case, generator)
    return tally


def _last_lines() -> str:
    """Where it was raised, and what."""
    lines = traceback.format_exc().strip().splitlines()
    places = [line.split("/opcost/")[-1] for line in lines if "/opcost/" in line]
    kind, _, said = lines[-1].partition(":")
    return f"{kind} in {places[-1] if places else 'no line of opcost'}:{said[:120]}"
