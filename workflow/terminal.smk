# What the terminal shows. Snakemake announces each job twice before it starts; here a measurement
# announces its result, and now and then there is a line about the time still needed. The log file
# under .snakemake/log keeps everything.

import logging
import re
import time

from snakemake.logging import get_event, logger
from snakemake_interface_logger_plugins.common import LogEvent

from opcost.planning.progress import Pace
from opcost.terminal import announce, show_any_text

show_any_text()

ANNOUNCEMENT = re.compile(r"Select jobs to execute\.\.\.|Execute \d+ jobs\.\.\.")

for handler in logger.handlers:
    if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
        handler.addFilter(lambda record: not ANNOUNCEMENT.fullmatch(record.getMessage()))


class TimeLeft(logging.Handler):
    """Only Snakemake knows how many jobs there are, also where they run on other machines."""

    pace = Pace()

    def emit(self, record):
        if get_event(record) == LogEvent.JOB_STARTED:
            done, total = workflow.scheduler.finished_jobs, len(workflow.dag)
            line = self.pace.line(done, total, time.monotonic())
            if line:
                announce(line)


logger.addHandler(TimeLeft())


def say_how_to_go_on():
    if workflow.is_main_process:
        announce("What was measured is kept: the same command goes on from there.")
