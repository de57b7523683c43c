"""A model's operator tuples, joined with their measurements."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opcost.rows.flags import PREDICTED
from opcost.text import counted
from opcost.tuples.model_tuples import ModelTuples, total_flops
from opcost.tuples.tuple_record import TupleRecord

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Term:
    """One kernel-launching tuple of a model, how often it is called, and its row if any: measured,
    or predicted. `refusal` is why it was not predicted, if that was tried.
    """

    record: TupleRecord
    calls: int
    row: Row | None
    filtered: bool
    refusal: str | None = None

    @property
    def known(self) -> bool:
        """Whether it has a result, measured or predicted."""
        return self.row is not None and self.row["status"] == "ok"

    @property
    def predicted(self) -> bool:
        """Whether its result is a prediction."""
        return self.row is not None and PREDICTED in (self.row["flags"] or ())

    @property
    def measured(self) -> bool:
        """Whether it has a result that was measured."""
        return self.known and not self.predicted


def terms_of(model: ModelTuples, rows: Mapping[str, Row], filtered: set[str]) -> list[Term]:
    """The kernel-launching tuples of a model, each with its row among `rows` (by tuple id).

    `filtered` are the ids of the tuples that the study does not benchmark.
    """
    return [
        Term(record, calls, rows.get(tuple_id), tuple_id in filtered)
        for record, calls in model.kernels()
        for tuple_id in [record.operator_tuple.tuple_id]
    ]


def by_target(compared: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """Target -> model -> row of the comparison."""
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in compared:
        found[row["target"]][row["model"]] = row
    return found


def why_incomplete(terms: Sequence[Term]) -> str | None:
    """Why there is no complete sum, or None if every tuple is measured."""
    if not terms:
        return (
            "the model launches no kernel: its time is that of calls alone, and a target's call "
            "overhead is stored in the rows of operators"
        )
    missing = [term for term in terms if not term.known]
    if not missing:
        return None
    parts = []
    filtered = sum(term.filtered for term in missing)
    if filtered:
        parts.append(f"{filtered} of {len(terms)} operator tuples are filtered out")
    failed = [term for term in missing if term.row is not None and not term.filtered]
    if failed:
        example = failed[0]
        assert example.row is not None
        parts.append(
            f"{len(failed)} of {len(terms)} operator tuples failed "
            f"({example.record.operator_tuple}: {example.row['status']}: {example.row['error']})"
        )
    absent = len(missing) - filtered - len(failed)
    if absent:
        are = "is" if absent == 1 else "are"
        text = f"{absent} of {counted(len(terms), 'operator tuple')} {are} not measured"
        for term in [term for term in missing if term.refusal][:1]:
            text += f", nor predicted ({term.record.operator_tuple.name}: {term.refusal})"
        parts.append(text)
    return "; ".join(parts)


def flops_of(terms: Sequence[Term]) -> int | None:
    """FLOPs of all calls, or None if those of one tuple are unknown."""
    return total_flops((term.record, term.calls) for term in terms)
