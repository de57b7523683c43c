"""Some configurations that make no sense, of which tests/test_study.py has more."""

from collections.abc import Callable
from typing import Any

from tests.faults.fault import Found, fault
from tests.faults.study import Study
from tests.faults.verdicts import refused


def wrong(number: str, what: str, change: Callable[[Study], Any], *says: str) -> None:
    """A fault: a configuration that is refused before any job starts."""

    def attempt(study: Study) -> Found:
        change(study)
        return refused(study.snakemake("--dry-run", timeout_s=60), *says)

    fault(number, what, measured=False)(attempt)


def aimed(**changes: Any) -> Callable[[Study], None]:
    return lambda study: study.aim(**changes)


wrong("31.1", "device gpu", aimed(device="gpu"), "device", "gpu", "cuda")
wrong("31.2", "threads 0", aimed(threads=0), "threads", "0")
wrong("31.3", "model -rf", lambda study: study.configure(models=["-rf"]), "-rf")
