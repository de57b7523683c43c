"""What a run shows in a terminal, and in a pipe."""

import io
import re

import pytest
from opcost.runs.display import MARK, Display

LINES = [
    "Using workflow specific profile",
    MARK,
    "[operator] local  3.1 µs ± 4.0%  linear(1x8, 8x8, 8)",
    f"{MARK}1 4",
    f"[model] local  8.7 µs ± 1.0%  {'long_name' * 20}",
    f"{MARK}2 4",
    f"[model] local  out_of_memory: {'a long reason ' * 10}",
    "opcost: model net: a mistake",
]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


def shown(stream, lines=LINES):
    display = Display(stream)
    for line in lines:
        display.show(line)
    display.close()
    return stream.getvalue()


def test_in_a_pipe_there_are_plain_lines_of_100_columns_and_now_and_then_the_time_left():
    text = shown(io.StringIO())
    first, model, pace, failed, error = text.splitlines()
    assert first == LINES[2]
    assert re.fullmatch(r"\[2/4\] about \d+ s left", pace)
    assert (len(model), model[-1]) == (99, "…")
    assert (failed, error) == (LINES[6], LINES[7])  # reasons are complete
    assert "\x1b" not in text


def test_a_terminal_has_a_bar_below_the_lines_which_fit_its_width():
    text = shown(Terminal())
    assert re.search(r"\r\x1b\[K━{12}─{12}  2/4  about 0 s left\r", text)
    plain = [re.sub(r"\x1b\[\d*[mK]|\r", "", line) for line in text.splitlines()]
    assert next(line for line in plain if "8.7" in line).endswith("…")
    assert max(len(line) for line in plain if "long_name" in line) == 79
    assert text.endswith("\r\x1b[K")  # nothing is left of the bar


def test_what_snakemake_says_is_shown_if_the_workflow_never_begins():
    assert LINES[0] not in shown(io.StringIO())
    assert shown(io.StringIO(), LINES[:1]) == f"{LINES[0]}\n"


def test_an_error_of_opcost_is_shown_without_what_snakemake_puts_around_it():
    header = 'WorkflowError in file "/a/workflow/package.smk", line 29:'
    frame = '  File "/a/workflow/Snakefile", line 68, in __onstart'
    reason = ["this folder is in use", "  by another process"]
    assert shown(io.StringIO(), [LINES[0], header, *reason, frame]) == (
        "opcost: this folder is in use\n  by another process\n"
    )


@pytest.mark.parametrize("name", ["OpcostError", "WorkflowError"])
def test_an_error_of_opcost_in_an_input_function_is_shown_alone(name):
    header = ['InputFunctionException in rule compare in file "/a", line 9:', "Error:"]
    around = ["Wildcards:", "target=local", "", "Traceback:", '  File "/a.py", line 1, in plan']
    lines = [MARK, *header, f"  {name}: a.parquet is damaged", *around, "the end"]
    assert shown(io.StringIO(), lines) == "opcost: a.parquet is damaged\nthe end\n"
    bug = [MARK, *header, "  KeyError: 'x'", *around]
    assert shown(io.StringIO(), bug).splitlines() == bug[3:]


def test_that_others_use_the_device_is_said_once():
    waiting = ["waiting for the device, held by process 7", "waiting for the device, held by 8"]
    lines = [MARK, waiting[0], LINES[2], waiting[1], LINES[2]]
    assert shown(io.StringIO(), lines) == "\n".join([waiting[0], LINES[2], LINES[2], ""])
