"""How many operators it takes until their time is near that of the model end to end."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from opcost.costs.breakdown import Part
from opcost.costs.explanation import Explanation
from opcost.rows.quantities import TIME
from opcost.text import counted, percent, seconds, table, wrapped


@dataclass(frozen=True)
class Growth:
    """The measured parts of a model's time on a target, costliest first, beside the time end to end
    (None if unknown).

    `reached` is the least number of parts whose sum differs from it by at most 1 - `share`, None if
    there is none.
    """

    target: str
    share: float
    parts: tuple[Part, ...]
    end_to_end_s: float | None
    unmeasured: int

    @property
    def sums(self) -> list[float]:
        """The time of the first parts relative to the time end to end, for each number of them."""
        times_s = (part.amount or 0.0 for part in self.parts)
        return [each / self.end_to_end_s for each in accumulate(times_s) if self.end_to_end_s]

    @property
    def reached(self) -> int | None:
        """The least number of parts."""
        near = (n for n, each in enumerate(self.sums, 1) if abs(each - 1) <= 1 - self.share)
        return next(near, None)

    def to_document(self) -> dict[str, Any]:
        """The growth as JSON data."""
        return {**asdict(self), "sums": self.sums, "reached": self.reached}


def growth(explanation: Explanation, share: float) -> Growth:
    """The growth on a target, from measured operators only."""
    parts = tuple(part for part in explanation.parts(TIME) if not part.is_rest)
    end_to_end_s = explanation.compared[TIME.of("end_to_end").value]
    return Growth(explanation.target, share, parts, end_to_end_s, len(explanation.missing))


def growth_text(found: Sequence[Growth]) -> str:
    """The parts on each target until the share is reached, and what the others take."""
    return "\n\n".join("\n".join(_lines(each)) for each in found)


def _lines(growth: Growth) -> list[str]:
    target, aim = growth.target, percent(growth.share, 1).replace(".0%", "%")
    if growth.end_to_end_s is None:
        return wrapped([f"Until {aim} on {target}: no time end to end, which opcost run measures"])
    shown = growth.parts[: growth.reached]
    header = [f"until {aim} of {seconds(growth.end_to_end_s)}, on {target}", "calls", "time", "sum"]
    rows = [
        [part.name, str(part.calls or ""), seconds(part.amount or 0.0), percent(total, 1)]
        for part, total in zip(shown, growth.sums, strict=False)
    ]
    others = growth.parts[len(shown) :]
    rest = f"{counted(growth.unmeasured, 'tuple')} not measured" if growth.unmeasured else ""
    if growth.reached is None:
        highest = percent(max(growth.sums, default=0.0), 1)
        text = f"Never within {percent(1 - growth.share, 1)}: all together, {highest}. {rest}"
    else:
        rest_s = sum(part.amount or 0.0 for part in others)
        share = percent(rest_s / growth.end_to_end_s, 1)
        text = f"The rest, {counted(len(others), 'part')}: {seconds(rest_s)}, {share}. {rest}"
    return [*table(header, rows), *wrapped([text.rstrip(" .") + "."])]
