"""An estimate as a graph of a model's modules and operators, with their costs, as DOT or JSON.

An edge leads from the model or a module to what is nested in it or called by it, in the order of
the first call. Which result is the input of which call is not recorded: edges are no data flow.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opcost.costs.explanation import Explanation
from opcost.costs.trace import metadata, stacks
from opcost.files import replacing
from opcost.text import counted, joules, seconds

_OF_CALLS = ("flops", "bytes")


def write_graph(explanation: Explanation, output: Path) -> None:
    """Write the graph of a complete estimate as DOT (`.dot`), or else as JSON."""
    nodes = _nodes(explanation)
    text = "\n".join(_dot(nodes)) if output.suffix == ".dot" else _json(nodes, explanation)
    with replacing(output) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")


def _nodes(explanation: Explanation) -> list[dict[str, Any]]:
    """Each node after the one that it is nested in (`inside`, None of the model), with the number
    of operator calls in it, and the sums over them: None if unknown.
    """
    nodes: dict[tuple[str, ...], dict[str, Any]] = {}
    costs: dict[int, list[Mapping[str, Any]]] = {}
    for stack in stacks(explanation):
        names, inside = tuple(f"{each.kind} {each.name}" for each in stack), None
        for depth, each in enumerate(stack, 1):
            node = nodes.setdefault(
                names[:depth],
                {
                    "id": len(nodes),
                    "inside": inside,
                    "kind": each.kind,
                    "name": each.name,
                    "class": each.arguments.get("class"),
                },
            )
            inside = node["id"]
            costs.setdefault(inside, []).append(stack[-1].arguments)
    return [node | _sums(costs[node["id"]]) for node in nodes.values()]


def _sums(costs: list[Mapping[str, Any]]) -> dict[str, Any]:
    calls = [each for each in costs if "tuple_id" in each]
    found: dict[str, Any] = {"calls": len(calls)}
    for name in ("time_s", "energy_j", *_OF_CALLS):  # a wait has a cost, and is no call
        values = [each[name] for each in (calls if name in _OF_CALLS else costs)]
        total = sum if name in _OF_CALLS else math.fsum
        found[name] = None if None in values else total(values)
    return found


def _json(nodes: list[dict[str, Any]], explanation: Explanation) -> str:
    found = {"graph": "modules and operators by nesting; no data flow", **metadata(explanation)}
    return json.dumps({**found, "nodes": nodes}, indent=2, allow_nan=False)


def _dot(nodes: list[dict[str, Any]]) -> Iterator[str]:
    yield f"digraph {_quoted(nodes[0]['name'])} {{"
    yield "  rankdir=LR; node [shape=box];"
    for node in nodes:
        name = node["name"].rpartition(".")[2] if node["kind"] == "module" else node["name"]
        kind = f" ({node['class']})" if node["class"] else ""
        costs = [counted(node["calls"], "call")] if node["calls"] else []
        costs.append(seconds(node["time_s"]))
        costs += [] if node["energy_j"] is None else [joules(node["energy_j"])]
        label = _quoted(f"{name}{kind}\n{', '.join(costs)}")
        style = "" if node["kind"] in ("model", "module", "phase") else " style=rounded"
        yield f"  {node['id']} [label={label}{style}];"
        if node["inside"] is not None:
            yield f"  {node['inside']} -> {node['id']};"
    yield "}"


def _quoted(text: str) -> str:
    """A string of DOT."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'
