"""The verdict of a gate as text, as Markdown, and as JUnit XML."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from opcost.difference.gate import MOST_FURTHER, Gate, Gated, Verdict
from opcost.difference.summary import condition_lines
from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.terminal import printable
from opcost.text import counted, shortened, some, table

_TAGS = {Verdict.WORSE: "failure", Verdict.UNDECIDED: "skipped"}
_NAMES = 3


def as_text(gate: Gate, most: int) -> str:
    """The verdict, all that is worse or undecided, and at most `most` things that are not worse."""
    lines = [
        *_answer(gate),
        "",
        *table(_header(gate), _rows(gate, most), left=3),
        "",
        *_notes(gate),
    ]
    return "\n".join([*lines, *condition_lines(gate.conditions)])


def as_markdown(gate: Gate, most: int) -> str:
    """The same as Markdown, for a comment in a pull request."""
    first, *others = _answer(gate)
    header = _header(gate)
    cells = [header, ["---"] * len(header), *_rows(gate, most)]
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in cells]
    conditions = [f"- {each.name}: {each.before} -> {each.after}" for each in gate.conditions]
    return "\n".join([f"**{first}**", *others, "", *lines, "", *_notes(gate), "", *conditions])


def write_junit(path: Path, gate: Gate) -> None:
    """Write a test case for each thing and limit: failed if worse, skipped if undecided. Raises
    OpcostError for a file that does not end in .xml, as a database may be.
    """
    if path.suffix != ".xml":
        raise OpcostError(f"{path}: name a file that ends in .xml")
    cases: list[tuple[str, str, str | None, str]] = [
        (f"{each.name} {each.limit}", each.target, _TAGS.get(each.verdict), shown(each))
        for each in gate.things
    ]
    cases += [(name, "", "failure", f"fails after: {why}") for name, why in gate.failures.items()]
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name="opcost diff", errors="0")
    suite.set("tests", str(len(cases)))
    for kind, attribute in (("failure", "failures"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(each[2] == kind for each in cases)))
    for name, target, tag, message in cases:
        names = {"name": printable(name), "classname": f"{gate.by}.{printable(target)}"}
        case = ElementTree.SubElement(suite, "testcase", names)
        if tag is None:
            ElementTree.SubElement(case, "system-out").text = message
        else:
            ElementTree.SubElement(case, tag, message=printable(message))
    ElementTree.indent(root)
    with replacing(path) as temporary:
        ElementTree.ElementTree(root).write(temporary, encoding="utf-8", xml_declaration=True)


def shown(each: Gated) -> str:
    """The change of a thing: `time +7.0% [+5.2%, +8.9%], limit 5%`."""
    change, interval, limit = _numbers(each)
    return f"{each.limit.quantity} {change} {interval}, limit {limit}"


def _answer(gate: Gate) -> Iterator[str]:
    found = [each for each in _sorted(gate) if each.verdict is gate.verdict]
    for name, why in gate.failures.items():
        yield f"Worse: {shortened(name)} fails after: {shortened(why, 200)}"
    if found:
        title = f"{gate.verdict.capitalize()}: {shortened(found[0].name)} {shown(found[0])}"
        yield f"{title} ({len(found)} of {counted(len(gate.things), 'test')}, by {gate.by})"
    if gate.verdict is Verdict.UNDECIDED:
        most = max(each.further for each in found)
        number = f"about {most}" if most < MOST_FURTHER else f"{most} or more"
        yield f"Further studies of each side to decide all: {number}, if changes are as found."


def _sorted(gate: Gate) -> list[Gated]:
    order = [*Verdict]
    return sorted(gate.things, key=lambda each: (order.index(each.verdict), -each.excess))


def _numbers(each: Gated) -> tuple[str, str, str]:
    change, low, high = (f"{share:+.1%}" for share in each.change)
    return change, f"[{low}, {high}]", f"{100 * each.limit.share:g}%"


def _header(gate: Gate) -> Sequence[str]:
    return "", gate.by, "target", "quantity", "change", "interval", "limit"


def _rows(gate: Gate, most: int) -> list[Sequence[str]]:
    ordered = _sorted(gate)
    open_ones = sum(each.verdict is not Verdict.NOT_WORSE for each in ordered)
    return [
        (each.verdict, shortened(each.name), each.target, str(each.limit.quantity), *_numbers(each))
        for each in ordered[: open_ones + most]
    ]


def _notes(gate: Gate) -> Iterator[str]:
    before, after = gate.things[0].studies
    yield (
        f"Studies: {before} before, {after} after. Lower limits are adjusted for "
        f"{counted(len(gate.things), 'test')}; upper limits need no adjustment."
    )
    if gate.left_out:
        names = some([*map(shortened, gate.left_out)], _NAMES)
        yield f"Not in all studies, and not compared: {names}."
