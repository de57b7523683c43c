# What the terminal shows. Snakemake announces each job twice before it starts; here a measurement
# announces its result. The log file under .snakemake/log keeps everything.

import logging
import re

from snakemake.logging import logger

ANNOUNCEMENT = re.compile(r"Select jobs to execute\.\.\.|Execute \d+ jobs\.\.\.")

for handler in logger.handlers:
    if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
        handler.addFilter(lambda record: not ANNOUNCEMENT.fullmatch(record.getMessage()))
