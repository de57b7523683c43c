"""How an outcome is judged. Only these functions call anything good."""

import re

from tests.faults.fault import BAD, GOOD, POOR, Found
from tests.faults.study import Outcome

REMEDY = (
    r"(?i)\b(delete|run again|run opcost|name (a|another|one|the)|give|use|set|allowed|did you mean"
    r"|install|free|choose|lower|raise|check|write|remove|list|rename|make|change|measure|move"
    r"|ask|start|end it|must|at least|at most|keep|put|repair|replace|export|mount|grant"
    r"|minimum|maximum|not of type|does not match|one of|non-unique|in the range|or more)\b"
    r"|docs/\w"
)
"""Words that tell the reader what to do, or what is allowed."""
_NEXT = 3
"""A message's lines, from the one that says what is wrong."""

_OURS = re.compile(r"(opcost: |WorkflowError|[Ee]rror: |[Ee]xception|not valid)")


def message(outcome: Outcome) -> str:
    """The line of the output that matters most, in one line."""
    lines = [line.strip() for line in outcome.text.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith(("opcost: ", "WorkflowError")) or "is not valid:" in line:
            return shorten(" ".join(lines[number : number + 3]))
    named = [line for line in lines if _OURS.search(line)]
    return shorten((named or lines or ["no output"])[-1])


def shorten(text: str, length: int = 220) -> str:
    """A text on one line, at most that long."""
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 3]}..."


def refused(outcome: Outcome, *says: str, accepted: str = BAD) -> Found:
    """Good if the command failed with a text that holds all of `says` (regular expressions), and
    says what to do; `accepted` if it did not fail at all."""
    if outcome.hung:
        return Found(BAD, f"hangs: killed after {outcome.seconds:.0f} s")
    if outcome.code == 0:
        return Found(accepted, f"accepted, exit 0: {message(outcome)}")
    return explained(outcome, *says)


def explained(outcome: Outcome, *says: str) -> Found:
    """Good if the text holds all of `says`, says what to do, and is no traceback."""
    if outcome.hung:
        return Found(BAD, f"hangs: killed after {outcome.seconds:.0f} s")
    if outcome.traceback:
        return Found(POOR, f"traceback: {message(outcome)}")
    missing = [each for each in says if not re.search(each, outcome.text)]
    if not re.search(REMEDY, _about(outcome.text, says)):
        missing.append("what to do")
    if missing:
        return Found(POOR, f"does not say {', '.join(missing)}: {message(outcome)}")
    return Found(GOOD, f"exit {outcome.code}: {message(outcome)}")


def _about(text: str, says: tuple[str, ...]) -> str:
    """The lines that say one of `says`, each with those after it; all of them if there is none."""
    lines = text.splitlines()
    first = [
        number
        for number, line in enumerate(lines)
        if any(re.search(each, line) for each in says) or line.startswith("opcost: ")
    ]
    chosen = sorted({each for number in first for each in range(number, number + _NEXT)})
    return "\n".join(lines[each] for each in chosen if each < len(lines)) if first else text


def works(outcome: Outcome, *says: str, wrong: str = "") -> Found:
    """Good if the command ended with 0 and its text holds all of `says`; BAD if `wrong` is said."""
    if outcome.hung:
        return Found(BAD, f"hangs: killed after {outcome.seconds:.0f} s")
    if wrong:
        return Found(BAD, wrong)
    if outcome.code != 0:
        kind = "traceback" if outcome.traceback else f"exit {outcome.code}"
        return Found(POOR, f"{kind}: {message(outcome)}")
    missing = [each for each in says if not re.search(each, outcome.text)]
    if missing:
        return Found(POOR, f"exit 0, but does not say {', '.join(missing)}: {message(outcome)}")
    return Found(GOOD, f"exit 0, {outcome.seconds:.0f} s")


def held(condition: bool, text: str, otherwise: str = BAD) -> Found:
    """Good if the condition held."""
    return Found(GOOD if condition else otherwise, text)


def all_of(*found: Found) -> Found:
    """The worst of several: the one to look at."""
    return max(found, key=lambda each: (GOOD, POOR, BAD).index(each.verdict))
