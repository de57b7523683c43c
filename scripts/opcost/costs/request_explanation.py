"""The estimated cost of a request to a language model on each target of a database."""

import itertools
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opcost.costs.breakdown import Part, breakdown
from opcost.costs.caveats import caveats
from opcost.costs.cost_tables import indented, missing_lines, module_lines, operator_lines
from opcost.costs.explanation import Explanation, explain
from opcost.costs.explanation_text import no_data, sources_of
from opcost.costs.module_tree import NOTABLE, module_tree
from opcost.costs.requests import Request, request_cells, request_notes
from opcost.costs.terms import Row, Term
from opcost.models.generation import Generation
from opcost.rows.quantities import ENERGY, TIME, Quantity
from opcost.text import counted, scaled, seconds, table, with_meaning_of_noise, wrapped
from opcost.tuples.model_tuples import ModelTuples


@dataclass(frozen=True)
class RequestExplanation:
    """A request on one target of one database, with the explanation of each of its steps."""

    request: Request
    steps: Mapping[str, Explanation]

    @property
    def first(self) -> Explanation:
        """The explanation of the prefill."""
        return self.steps[self.request.generation.prefill]

    def operators(self) -> list[dict[str, Any]]:
        """The cost by operator and phase, largest first."""
        shares = ((name, each.operators()) for name, each in self.steps.items())
        return self.request.operators(self._named(shares))

    def modules(self, depth: int | None = None) -> list[dict[str, Any]]:
        """The cost by module and phase, largest first."""
        modules = ((name, each.modules(depth)) for name, each in self.steps.items())
        return self.request.modules(self._named(modules))

    def parts(self, quantity: Quantity) -> list[Part]:
        """Parts that add up to the time or energy."""
        return breakdown(self.request.columns(), self.operators(), quantity)

    @property
    def missing(self) -> list[Term]:
        """The tuples of any step without a result."""
        every = itertools.chain(*(each.missing for each in self.steps.values()))
        return [*{term.record.operator_tuple.tuple_id: term for term in every}.values()]

    @property
    def has_data(self) -> bool:
        """Whether any tuple of its steps is in the database."""
        return any(each.has_data for each in self.steps.values())

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """The target's names under other conditions with operators in the database."""
        every = itertools.chain(*(each.elsewhere for each in self.steps.values()))
        return tuple(dict.fromkeys(every))

    @property
    def is_complete(self) -> bool:
        """Whether there is a time."""
        return all(each.is_complete for each in self.steps.values())

    def tuples(self) -> list[dict[str, Any]]:
        """A row of `schemas.EXPLANATION` for each tuple of each step that launches a kernel."""
        return [row for each in self.steps.values() for row in each.tuples()]

    def to_document(self) -> dict[str, Any]:
        """The explanation as JSON data."""
        return {
            "database": str(self.first.database),
            "conditions_id": self.first.conditions_id,
            "device_name": self.first.device_name,
            **self.request.columns(),
            "operators": self.operators(),
            "modules": self.modules(),
            "steps": {name: each.to_document() for name, each in self.steps.items()},
        }

    def _named(self, rows: Any) -> list[Row]:
        target = self.request.target
        return [
            {**row, "model": name, "target": target, "tuple_ids": None}
            for name, found in rows
            for row in found
        ]


def explain_request(
    generation: Generation,
    steps: Sequence[ModelTuples],
    databases: Sequence[Path],
    targets: Collection[str] = (),
) -> list[RequestExplanation]:
    """The cost of a request on every target of the databases, or on the named `targets`.

    `steps` are the tuples of its models. Raises OpcostError like `explain`.
    """
    found: dict[tuple[Path, str, str | None], dict[str, Explanation]] = {}
    for model in steps:
        for each in explain(model, databases, targets):
            place = each.database, each.target, each.conditions_id
            found.setdefault(place, {})[model.model] = each
    return [
        RequestExplanation(
            Request(generation, target, {name: each.compared for name, each in named.items()}),
            named,
        )
        for (_, target, _), named in found.items()
    ]


def request_as_text(
    generation: Generation,
    found: Sequence[RequestExplanation],
    name: str,
    top: int,
    depth: int | None,
) -> str:
    """The request, a table of targets, and for each target the cost by operator and module.

    `name` is the argument that found its config.
    """
    flops = found[0].request.columns()["flops"] if found else None
    found, without = [each for each in found if each.has_data], no_data(found)
    rows = [each.request.columns() for each in found]
    work = "unknown FLOPs" if flops is None else scaled(flops, "FLOPs", 4)
    head = (
        f"{generation.name}: {counted(generation.batch_size, 'sequence')}, each of "
        f"{generation.prompt_tokens} tokens that {generation.new_tokens} new ones follow; {work}"
    )
    parts = ["\n".join(wrapped([head]))]
    if found:
        sources = sources_of([each.first for each in found])
        cells = [
            {"target": each.request.target, "device": each.first.device_name or "-"}
            | {title: text for title, text in costs.items() if title not in ("request", "target")}
            | {"database": source}
            for each, costs, source in zip(found, request_cells(rows), sources, strict=True)
        ]
        lines = table(list(cells[0]), [list(each.values()) for each in cells], left=2)
        parts.append("\n".join(lines))
    parts += [_on_target(each, row, top, depth) for each, row in zip(found, rows, strict=True)]
    parts += without
    if without or any(each.missing for each in found):
        remedy = f"    {shlex.join(['opcost', 'run', name])}"
        parts.append(f"To measure what is missing:\n\n{remedy}")
    return with_meaning_of_noise("\n\n".join(parts))


def _on_target(each: RequestExplanation, row: Row, top: int, depth: int | None) -> str:
    lines = [f"Target {each.request.target}, of {each.first.database}"]
    every = itertools.chain(*(step.estimate.terms for step in each.steps.values()))
    total = len({term.record.operator_tuple.tuple_id for term in every})
    if any(explanation.estimate.rows for explanation in each.steps.values()):
        lines += ["", *indented(operator_lines([("", each.parts(TIME), each.parts(ENERGY))], top))]
        model, most = each.first.estimate.model, None if depth else top
        parameters = model.module_parameters, model.own_parameters
        tree = module_tree(row, each.modules(depth), most, NOTABLE, *parameters)
        lines += ["", *indented(module_lines(tree, each.request.generation.name))]
    estimate_s, notes = row[TIME.of("estimate").value], request_notes([row])
    if estimate_s is not None:
        notes.insert(0, f"The tables are of the estimate, {seconds(estimate_s, 3)}.")
    notes += caveats([step.compared for step in each.steps.values()], quantities=())
    lines += [
        "",
        *wrapped(notes, "  "),
        *missing_lines(each.request.target, each.missing, total, 10),
    ]
    return "\n".join(lines)
