"""The estimated cost of a request to a language model on each target of a database."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from opcost.costs.breakdown import breakdown
from opcost.costs.caveats import caveats
from opcost.costs.cost_tables import indented, missing_lines, module_lines, operator_lines
from opcost.costs.explanation import Explanation, explain
from opcost.costs.explanation_text import no_data, sources_of
from opcost.costs.module_tree import NOTABLE, module_tree
from opcost.costs.requests import Request, request_cells, request_notes
from opcost.costs.terms import Row, Term
from opcost.costs.units import Factors, WorkCost, work_cost
from opcost.errors import OpcostError
from opcost.models.generation import Generation
from opcost.rows.quantities import COMPARED, TIME
from opcost.text import counted, percent, scaled, seconds, table_of, with_meaning_of_noise, wrapped
from opcost.tuples.model_tuples import ModelTuples


@dataclass(frozen=True)
class RequestExplanation:
    """A request on one target of one database, with the explanation of each of its steps."""

    request: Request
    steps: Mapping[str, Explanation]

    def operators(self) -> list[dict[str, Any]]:
        """The cost by operator and phase, largest first."""
        return self.request.operators({name: each.operators() for name, each in self.steps.items()})

    def modules(self, depth: int | None = None) -> list[dict[str, Any]]:
        """The cost by module and phase, largest first."""
        return self.request.modules(
            {name: each.modules(depth) for name, each in self.steps.items()}
        )

    @property
    def prefill(self) -> Explanation:
        """The explanation of the prefill."""
        return self.steps[self.request.generation.prefill]

    @property
    def is_complete(self) -> bool:
        """Whether there is a time."""
        return all(each.is_complete for each in self.steps.values())

    @property
    def is_predicted(self) -> bool:
        """Whether some operators are predicted."""
        return any(each.is_predicted for each in self.steps.values())

    def work(self, factors: Factors) -> WorkCost:
        """The cost of some requests, or of sequences or new tokens in them. Raises OpcostError for
        other words.
        """
        request, what = self.request, factors.what.removeprefix("new ").removesuffix("s")
        sequences, new_tokens = request.generation.batch_size, request.generation.new_tokens
        sizes = {"request": 1, "sequence": sequences, "token": sequences * new_tokens}
        if what not in sizes:
            raise OpcostError(f"--per {factors.what}: count requests, sequences or (new) tokens")
        rows = [(weight, request.rows[name]) for name, weight in request.weights.items()]
        times_s = [weight * (row["operators_time_s"] or 1) for weight, row in rows]
        share = fmean([row["predicted_share"] for _, row in rows], times_s)
        row = request.columns() | {"predicted_share": share, "end_to_end_measurements": None}
        return work_cost(row, factors, sizes[what], self.prefill.estimate.idle_power_w)

    def tuples(self) -> list[dict[str, Any]]:
        """A row of `schemas.EXPLANATION` for each tuple of each step that launches a kernel."""
        return [row for each in self.steps.values() for row in each.tuples()]

    def to_document(self) -> dict[str, Any]:
        """The explanation as JSON data."""
        return {
            "database": str(self.prefill.database),
            "conditions_id": self.prefill.conditions_id,
            "device_name": self.prefill.device_name,
            **self.request.columns(),
            "operators": self.operators(),
            "modules": self.modules(),
            "steps": {name: each.to_document() for name, each in self.steps.items()},
        }


def explain_request(
    generation: Generation,
    steps: Sequence[ModelTuples],
    databases: Sequence[Path],
    targets: Collection[str] = (),
    predict: bool = False,
) -> list[RequestExplanation]:
    """The cost of a request on every target of the databases, or on the named `targets`.

    `steps` are the tuples of its models; the rest is as in `explain`.
    """
    found: dict[tuple[Path, str, str | None], dict[str, Explanation]] = {}
    for model in steps:
        for each in explain(model, databases, targets, predict):
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
    work = "unknown FLOPs" if flops is None else scaled(flops, "FLOPs", 4)
    head = (
        f"{generation.name}: {counted(generation.batch_size, 'sequence')}, each of "
        f"{generation.prompt_tokens} tokens that {generation.new_tokens} new ones follow; {work}"
    )
    parts = ["\n".join(wrapped([head]))]
    known = [each for each in found if any(step.has_data for step in each.steps.values())]
    rows = [each.request.columns() for each in known]
    cells = [
        {"target": row["target"], "device": each.prefill.device_name or "-"}
        | {title: text for title, text in costs.items() if title not in ("request", "target")}
        | {"database": source}
        for each, row, costs, source in zip(
            known, rows, request_cells(rows), sources_of([e.prefill for e in known]), strict=True
        )
    ]
    if cells:
        parts.append("\n".join(table_of(cells, left=2)))
    parts += [_on_target(each, row, top, depth) for each, row in zip(known, rows, strict=True)]
    without = no_data([step for e in found if e not in known for step in e.steps.values()])
    parts += without
    if without or any(step.missing for each in known for step in each.steps.values()):
        remedy = f"    {shlex.join(['opcost', 'run', name])}"
        parts.append(f"To measure what is missing:\n\n{remedy}")
    return with_meaning_of_noise("\n\n".join(parts))


def _on_target(each: RequestExplanation, row: Row, top: int, depth: int | None) -> str:
    target, steps = row["target"], each.steps.values()
    lines = [f"Target {target}, of {each.prefill.database}"]
    if any(step.estimate.rows for step in steps):
        operators = each.operators()
        times, energies = (breakdown(row, operators, quantity) for quantity in COMPARED)
        lines += ["", *indented(operator_lines([("", times, energies)], top))]
        model, most = each.prefill.estimate.model, None if depth else top
        parameters = model.module_parameters, model.own_parameters
        tree = module_tree(row, each.modules(depth), most, NOTABLE, *parameters)
        lines += ["", *indented(module_lines(tree, row["model"]))]
    estimate_s, notes = row[TIME.of("estimate").value], request_notes([row])
    if estimate_s is not None:
        notes.insert(0, f"The tables are of the estimate, {seconds(estimate_s, 3)}.")
    predicted = [
        f"{percent(step.estimate.predicted_share())} of {name}"
        for name, step in each.steps.items()
        if step.is_complete and step.is_predicted
    ]
    if predicted:
        notes.append(f"Predicted from other operators, not measured: {', '.join(predicted)}.")
    notes += caveats([step.compared for step in steps], quantities=())
    total = len(_distinct(term for step in steps for term in step.estimate.terms))
    missing = _distinct(term for step in steps for term in step.missing)
    lines += ["", *wrapped(notes, "  "), *missing_lines(target, missing, total, 10)]
    return "\n".join(lines)


def _distinct(terms: Iterable[Term]) -> list[Term]:
    """Each tuple of several steps once."""
    return [*{term.record.operator_tuple.tuple_id: term for term in terms}.values()]
