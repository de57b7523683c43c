"""Models that are odd: state, calls that vary, hooks, prints, outputs that are no numbers."""

from collections.abc import Callable

from tests.faults import rows
from tests.faults.fault import POOR, Found, fault
from tests.faults.study import Outcome, Study
from tests.faults.user_code import HEAD, factory
from tests.faults.verdicts import held, refused, works


def model_row(study: Study) -> dict:
    """The row of the model `bad`."""
    return rows.read(next(study.target.glob("models/bad-*.parquet")))[0]


@fault("42.1", "the factory sets two threads, float64 and deterministic mode", "refused or flagged")
def global_state(study: Study) -> Found:
    study.add_model(
        factory(
            "torch.set_num_threads(2)",
            "torch.set_default_dtype(torch.float64)",
            "torch.use_deterministic_algorithms(True)",
        )
    )
    outcome = study.snakemake()
    if outcome.code != 0:
        return refused(outcome, "bad", "threads")
    row = model_row(study)
    if row["status"] != "ok":
        return held("thread" in row["error"], f"row {row['status']}: {row['error']}", POOR)
    told = {*row["flags"]} - {"disturbed", "drifting", "sentinel_quicker"}
    return held(bool(told), f"exit 0, ok, flags {row['flags']}")


GROWS = """
class Grows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for _ in range(min(self.calls, 200)):
            x = torch.relu(x)
        return x

def make():
    return Grows()
"""
RANDOM = """
import random

class Random(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) if random.random() < 0.5 else torch.sigmoid(torch.tanh(x))

def make():
    return Random()
"""


def varies(number: str, what: str, source: str) -> None:
    """A fault: a model that executes other calls from run to run."""

    def attempt(study: Study) -> Found:
        study.add_model(HEAD + source)
        outcome = study.snakemake()
        if outcome.code != 0:
            return refused(outcome, "bad", "calls")
        row = model_row(study)
        told = {*(row["flags"] or [])} - {"disturbed", "drifting", "sentinel_quicker"}
        said = bool(told) or "call" in (row["error"] or "")
        return held(said, f"exit 0, row {row['status']}, flags {row['flags']}", POOR)

    fault(number, what, "flagged, or refused")(attempt)


varies("43.1", "forward executes more calls each time", GROWS)
varies("43.2", "forward takes a branch at random", RANDOM)


def runs(number: str, what: str, source: str, judge: Callable[[Study, Outcome], Found]) -> None:
    """A fault: a model that is odd, and may be."""

    def attempt(study: Study) -> Found:
        study.add_model(HEAD + source)
        return judge(study, study.snakemake())

    fault(number, what, "measured, or refused with the model's name")(attempt)


def measured(flag: str = "") -> Callable[[Study, Outcome], Found]:
    def judge(study: Study, outcome: Outcome) -> Found:
        if outcome.code != 0:
            return refused(outcome, "bad")
        row = model_row(study)
        fine = row["status"] == "ok" and (not flag or flag in row["flags"])
        return works(outcome, wrong="" if fine else f"row {row['status']}, flags {row['flags']}")

    return judge


def not_made(*says: str) -> Callable[[Study, Outcome], Found]:
    return lambda study, outcome: refused(outcome, "bad", *says)


def module(forward: str, more: str = "") -> str:
    """The source of a model with this forward."""
    lines = f"class Odd(torch.nn.Module):\n    def forward(self, x):\n        {forward}\n"
    return f"{lines}\ndef make():\n    model = Odd()\n    {more or 'pass'}\n    return model\n"


runs(
    "44.1",
    "the factory returns no module",
    "def make():\n    return 5\n",
    not_made("int", "nn.Module"),
)
runs("44.2", "the factory is not there", "def other():\n    pass\n", not_made("make"))
runs("44.3", "forward prints", module("print('hello'); return torch.relu(x)"), measured())
runs(
    "44.4",
    "the model has hooks",
    module("return torch.relu(x)", "model.register_forward_hook(lambda *_: None)"),
    measured(),
)
runs(
    "44.5",
    "a branch that depends on values",
    module("return torch.relu(x) if x.sum() > 0 else torch.tanh(x)"),
    measured(),
)
runs("44.6", "outputs that are NaN", module("return x / 0 * 0"), measured("degenerate_values"))
runs("44.7", "forward changes its input", module("return x.mul_(1e30)"), measured())
runs(
    "44.8",
    "forward writes files",
    module("open('written', 'w').write('x'); return torch.relu(x)"),
    measured(),
)
