"""The answer to `--offload` as text: the weights that are copied in, and the cost of a pass."""

from collections.abc import Sequence

from opcost.costs.cost_tables import indented
from opcost.costs.offload import FromMemory, Offload, OffloadMemory, in_bytes
from opcost.rows.flags import explained
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate
from opcost.text import counted, table, with_interval, wrapped

_LIMITS = (
    "The weights that stay were chosen by the seconds that they save for each byte. Not counted: "
    "memory for workspaces and the context, and, for copies hidden at best, a second buffer and "
    "the bandwidth that they take."
)


def offload_as_text(memory: OffloadMemory, answers: Sequence[Offload], top: int) -> str:
    """The required memory, and for each target the `top` copied weights and the costs."""
    text = (
        f"Memory within {in_bytes(memory.budget_bytes)}: inputs {in_bytes(memory.input_bytes)}, "
        f"activations {in_bytes(memory.activation_peak_bytes)} at their peak, weights "
        f"{in_bytes(memory.weight_bytes)}; at least {in_bytes(memory.least_bytes)} if all "
        "weights are copied in"
    )
    lines = wrapped([text])
    if memory.fits:
        return "\n".join([*lines, "All of it fits: no weights are copied in."])
    return "\n\n".join(["\n".join(lines), *(_target(answer, top) for answer in answers)])


def _target(answer: Offload, top: int) -> str:
    explanation = answer.explanation
    name = f"Offloading on target {explanation.target}"
    if explanation.conditions_id is not None:
        name += f" ({explanation.conditions_id})"
    if answer.reason is not None:
        return "\n".join(wrapped([f"{name}: {answer.reason}."]))
    summary = (
        f"{name}: {in_bytes(answer.staying_bytes)} of weights stay, "
        f"{in_bytes(answer.memory.weight_bytes - answer.staying_bytes)} are copied in for each "
        f"pass through a buffer of {in_bytes(answer.buffer_bytes)}"
    )
    chosen = answer.found[0]
    blocks = [
        wrapped([summary]),
        indented(_copied(chosen, top)),
        indented(_costs(answer)),
        wrapped(_notes(chosen), "  "),
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _copied(chosen: FromMemory, top: int) -> list[str]:
    """The weights that are copied in, slowest first."""
    costs = [(group, chosen.copies_cost(TIME, group)) for group in chosen.copied]
    costs.sort(key=lambda each: each[1].value if each[1] else 0.0, reverse=True)
    rows = [
        [
            group.module_path or "the model itself",
            in_bytes(group.bytes),
            str(group.uses * len(group.weights)),
            with_interval(time, TIME.show),
            with_interval(chosen.copies_cost(ENERGY, group), ENERGY.show),
        ]
        for group, time in costs[:top]
    ]
    if rest := costs[top:]:
        size = in_bytes(sum(group.bytes for group, _ in rest))
        rows.append([counted(len(rest), "other"), size, "", "", ""])
    return table(
        [f"copied in, from {chosen.memory} memory", "bytes", "copies", "time", "energy"], rows
    )


def _costs(answer: Offload) -> list[str]:
    estimate = answer.explanation.estimate
    rows = [_row("all weights on the device", estimate.time, estimate.energy)]
    for each in answer.found:
        memory = f"{each.memory} memory"
        copies, sequential = (
            [cost(TIME), cost(ENERGY)] for cost in (each.copies_cost, each.sequential)
        )
        rows += [
            _row(f"copies only, from {memory}", *copies),
            _row(f"copies in turn, from {memory}", *sequential),
            _row(f"copies hidden at best, from {memory}", each.overlapped_time, None),
        ]
    return table(["a pass with", "time", "energy"], rows)


def _row(what: str, time: Estimate | None, energy: Estimate | None) -> list[str]:
    return [what, with_interval(time, TIME.show), with_interval(energy, ENERGY.show)]


def _notes(chosen: FromMemory) -> list[str]:
    notes = [f"Copies flagged {flag}: {explained(flag)}." for flag in chosen.flags]
    largest = max(chosen.copies)
    if any(weight.bytes > largest for group in chosen.copied for weight in group.weights):
        notes.append(
            f"Copies larger than {in_bytes(largest)}, the largest measured, are extrapolated in "
            "proportion, without an interval."
        )
    estimate = chosen.explanation.estimate
    if estimate.time_reason:
        notes.append(f"The model has no time: {estimate.time_reason}.")
    elif chosen.energy_reason:
        notes.append(f"No energy: {chosen.energy_reason}.")
    return [*notes, _LIMITS]
