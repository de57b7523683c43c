# The terminal output. Snakemake announces each job twice before it starts; here a measurement
# announces its result, with an occasional line about the remaining time. `--quiet host` restores
# Snakemake's own lines. For `opcost run`, which shows a bar, only errors are printed, and progress
# goes to its display (scripts/opcost/runs/display.py).

import logging
import os
import signal
import sys
import time

from snakemake.logging import get_event, logger
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent

from opcost.files import version_of
from opcost.planning.progress import Pace
from opcost.results_folder import REPORT, SUMMARY
from opcost.runs.display import MARK
from opcost.terminal import show_any_text

show_any_text()

SUMMARY_BEFORE = version_of(SUMMARY)

# The profiles do not silence progress: Snakemake would not count the jobs.
HIDDEN = {LogEvent.JOB_STARTED}
IS_QUIET = Quietness.RULES in (workflow.output_settings.quiet or ())
HAS_DISPLAY = "OPCOST_DISPLAY" in os.environ and workflow.is_main_process
if IS_QUIET:
    HIDDEN |= {
        LogEvent.PROGRESS,
        LogEvent.JOB_FINISHED,
        LogEvent.RESOURCES_INFO,
        LogEvent.RUN_INFO,
    }
HIDDEN_TEXTS = {  # without an event
    "Select jobs to execute...",
    "DAG of jobs will be updated after completion.",
    "Updating checkpoint dependencies.",
}
NOISE = "Cannot restore "  # outputs of a failed job, of which there are none at first
EXPLAINED = tuple(f"exit status {code}." for code in (1, 128 + signal.SIGINT, 128 + signal.SIGTERM))
LAST_TEXTS = ("Exiting because a job execution failed", "At least one job did not complete")


def is_shown(record):
    text = record.getMessage()
    if get_event(record) in HIDDEN or text in HIDDEN_TEXTS or text.startswith(NOISE):
        return False
    if HAS_DISPLAY and (record.levelno < logging.WARNING or any(map(text.count, LAST_TEXTS))):
        return False
    # A script that exits with 1, or was stopped, has printed why; this would add its whole command.
    return not (IS_QUIET and "CalledProcessError" in text and text.endswith(EXPLAINED))


def send_to_display(text):
    print(f"{MARK}{text}", file=sys.stderr, flush=True)


class TimeLeft(logging.Handler):
    """Announces the remaining time: only Snakemake knows the number of jobs, also on a cluster."""

    pace = Pace()

    def emit(self, record):
        if get_event(record) != LogEvent.PROGRESS:
            return
        if HAS_DISPLAY:
            send_to_display(f"{record.done} {record.total}")
        else:
            line = self.pace.line(record.done, record.total, time.monotonic())
            if line:
                announce(line)


for handler in logger.handlers:
    if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
        handler.addFilter(is_shown)
logger.addHandler(TimeLeft())


if HAS_DISPLAY:
    send_to_display("")


def print_resume_hint():
    if workflow.is_main_process and any(map(all_measurements, target_folders())):
        announce("What was measured is kept: the same command goes on from there.")


def print_summary():
    """Print the summary if this run has written it; with a display, the command prints its part."""
    if not HAS_DISPLAY and SUMMARY.exists() and version_of(SUMMARY) != SUMMARY_BEFORE:
        announce(f"\n{SUMMARY.read_text(encoding='utf-8')}\nMore on one page: {REPORT}")
