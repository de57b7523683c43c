"""The answer to `--offload` as text: the weights that are copied in, and the cost of a pass."""

from collections import Counter
from collections.abc import Sequence

from opcost.costs.cost_tables import indented
from opcost.costs.offload import CopiedGroup, FromMemory, Offload, OffloadMemory, in_bytes
from opcost.rows.flags import explained
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate
from opcost.text import counted, table, with_interval, wrapped

_LIMITS = (
    "The weights that stay minimise the time of copies. Not counted: memory for workspaces and the "
    "context, and, for copies hidden at best, a second buffer and the bandwidth that they take."
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
    choice, chosen = answer.choice, answer.found[0]
    assert choice is not None  # there is no reason why not
    summary = (
        f"{name}: {in_bytes(choice.staying_bytes)} of weights stay, "
        f"{in_bytes(sum(each.group.bytes for each in chosen.copied))} are copied in for each pass "
        f"through a buffer of {in_bytes(choice.buffer_bytes)}"
    )
    return "\n".join(
        [
            *wrapped([summary]),
            "",
            *indented(_copied(chosen, top)),
            "",
            *indented(_costs(answer)),
            "",
            *wrapped(_notes(chosen), "  "),
        ]
    )


def _copied(chosen: FromMemory, top: int) -> list[str]:
    """The weights that are copied in, slowest first."""
    ordered = sorted(chosen.copied, key=lambda each: -each.time.value)
    rows = [
        [
            each.group.module_path or "the model itself",
            in_bytes(each.group.bytes),
            str(each.group.uses * len(each.group.weights)),
            with_interval(each.time, TIME.show),
            with_interval(each.energy, ENERGY.show),
        ]
        for each in ordered[:top]
    ]
    if rest := ordered[top:]:
        rows.append([counted(len(rest), "other"), in_bytes(_bytes(rest)), "", "", ""])
    return _without_energy(
        [f"copied in, from {chosen.memory} memory", "bytes", "copies", "time", "energy"], rows
    )


def _costs(answer: Offload) -> list[str]:
    estimate = answer.explanation.estimate
    rows = [_row("all weights on the device", estimate.time, estimate.energy)]
    for each in answer.found:
        memory = f"{each.memory} memory"
        rows += [
            _row(f"copies only, from {memory}", each.copies_time, each.copies_energy),
            _row(f"copies in turn, from {memory}", each.sequential_time, each.sequential_energy),
            _row(f"copies hidden at best, from {memory}", each.overlapped_time, None),
        ]
    return _without_energy(["a pass with", "time", "energy"], rows)


def _row(what: str, time: Estimate | None, energy: Estimate | None) -> list[str]:
    return [what, with_interval(time, TIME.show), with_interval(energy, ENERGY.show)]


def _without_energy(header: list[str], rows: list[list[str]]) -> list[str]:
    if any(row[-1].strip("-") for row in rows):
        return table(header, rows)
    return table(header[:-1], [row[:-1] for row in rows])


def _notes(chosen: FromMemory) -> list[str]:
    bases = Counter(
        cost.basis for each in chosen.copied for cost in each.costs for _ in range(each.group.uses)
    )
    found = ", ".join(f"{number} {basis}" for basis, number in bases.most_common())
    notes = [f"Copies in a pass, by the sizes that were measured: {found}."]
    notes += [f"Copies flagged {flag}: {explained(flag)}." for flag in chosen.flags]
    estimate = chosen.explanation.estimate
    if estimate.time_reason:
        notes.append(f"The model has no time: {estimate.time_reason}.")
    elif chosen.energy_reason:
        notes.append(f"No energy: {chosen.energy_reason}.")
    return [*notes, _LIMITS]


def _bytes(copied: Sequence[CopiedGroup]) -> int:
    return sum(each.group.bytes for each in copied)
