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


def write_graph(explanation: Explanation, output: Path) -> None:
    """Write the graph of a complete estimate as DOT (`.dot`), or else as JSON."""
    nodes = _nodes(explanation)
    about = {"graph": "modules and operators by nesting, no data flow", **metadata(explanation)}
    document = json.dumps({**about, "nodes": nodes}, indent=2, allow_nan=False)
    with replacing(output) as temporary:
        text = "\n".join(_dot(nodes)) if output.suffix == ".dot" else document
        temporary.write_text(f"{text}\n", encoding="utf-8")


def _nodes(explanation: Explanation) -> list[dict[str, Any]]:
    """Each node after the one that it is nested in (`inside`, None of the model), with the number
    of operator calls in it, and their seconds and joules with call overhead; None if unknown.
    """
    nodes: dict[tuple[str, ...], dict[str, Any]] = {}
    calls: list[list[Mapping[str, Any]]] = []
    for stack in stacks(explanation):
        names, inside = tuple(f"{each.kind} {each.name}" for each in stack), None
        for depth, each in enumerate(stack, 1):
            if names[:depth] not in nodes:
                about = {"kind": each.kind, "name": each.name, "class": each.arguments.get("class")}
                nodes[names[:depth]] = {"id": len(nodes), "inside": inside, **about}
                calls.append([])
            inside = nodes[names[:depth]]["id"]
            calls[inside].append(stack[-1].arguments)
    return [node | _sums(calls[node["id"]]) for node in nodes.values()]


def _sums(calls: list[Mapping[str, Any]]) -> dict[str, Any]:
    energies_j = [each["energy_j"] for each in calls]
    return {
        "calls": sum("tuple_id" in each for each in calls),  # a wait for the host is none
        "time_s": math.fsum(each["time_s"] for each in calls),
        "energy_j": None if None in energies_j else math.fsum(energies_j),
    }


def _dot(nodes: list[dict[str, Any]]) -> Iterator[str]:
    yield f"digraph {_quoted(nodes[0]['name'])} {{"
    yield "  rankdir=LR; node [shape=box];"
    for node in nodes:
        name = node["name"].rpartition(".")[2] if node["kind"] == "module" else node["name"]
        costs = [counted(node["calls"], "call")] if node["calls"] else []
        costs += [seconds(node["time_s"])]
        costs += [] if node["energy_j"] is None else [joules(node["energy_j"])]
        title = f"{name} ({node['class']})" if node["class"] else name
        yield f"  {node['id']} [label={_quoted(title, ', '.join(costs))}];"
        if node["inside"] is not None:
            yield f"  {node['inside']} -> {node['id']};"
    yield "}"


def _quoted(*lines: str) -> str:
    """A string of DOT."""
    return '"{}"'.format(r"\n".join(s.replace("\\", r"\\").replace('"', r"\"") for s in lines))
