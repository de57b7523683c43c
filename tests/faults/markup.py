"""Texts in rows and models that a browser or a spreadsheet might run."""

import csv
from html.parser import HTMLParser
from pathlib import Path

from tests.faults import rows
from tests.faults.fault import POOR, Found, fault
from tests.faults.study import Outcome, Study
from tests.faults.verdicts import held, refused


class Elements(HTMLParser):
    """Elements of a page that would run something of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.harmful: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember those with a handler."""
        if any(name == "onerror" for name, _ in attrs):
            self.harmful.append(tag)

    def handle_data(self, data: str) -> None:
        """Remember our script, where it is one."""
        if self.lasttag == "script" and data.strip() == "harm()":
            self.harmful.append("script")


def harmless(study: Study, outcome: Outcome, *shown: str) -> Found:
    """Good if the report was made, holds what it should show, and no element of ours."""
    if outcome.code != 0:
        return refused(outcome)
    page = (study.results / "report.html").read_text()
    elements = Elements()
    elements.feed(page)
    return held(not elements.harmful, f"elements that would run: {elements.harmful}")


@fault("53.1", "<img onerror> in five columns", "escaped in the report, or refused")
def markup_in_columns(study: Study) -> Found:
    harm = "<img src=x onerror=harm()>"
    for path in (study.results / "database.parquet",):
        rows.change_one(
            path,
            description=harm,
            error=harm,
            device_name=harm,
            operator=f"aten.{harm}.default",
            stop_reason=harm,
        )
    return harmless(study, study.snakemake("--forcerun", "report"))


MODULE = """
import torch

def make():
    model = torch.nn.Module()
    model.add_module("{name}", torch.nn.ReLU())
    model.forward = model._modules["{name}"].forward
    return torch.nn.Sequential(Named())

class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("{name}", torch.nn.Linear(8, 8))

    def forward(self, x):
        return self._modules["{name}"](x)
"""


@fault("53.2", "<script> as a module's name", "escaped in the report")
def markup_as_module(study: Study) -> Found:
    study.add_model(MODULE.format(name="<script>harm()</script>"))
    return harmless(study, study.snakemake())


def formulas(path: Path) -> list[str]:
    """The cells of a CSV file that a spreadsheet would take for formulas."""
    with path.open(newline="") as file:
        cells = [cell for line in csv.reader(file) for cell in line]
    return [cell for cell in cells if cell.startswith(("=", "@")) or cell.startswith("+cmd")]


@fault("54.1", "`=cmd` as a description, exported as CSV", "no formula")
def formula_as_description(study: Study) -> Found:
    path = study.results / "database.parquet"
    rows.change_one(path, description="=cmd|' /C calc'!A0")
    outcome = study.opcost("export", path, study.root / "out.csv")
    if outcome.code != 0:
        return refused(outcome, "database.parquet")
    found = formulas(study.root / "out.csv")
    return held(not found, f"formulas: {found}", POOR)


@fault("54.2", "`=cmd` as a module's name, in modules.csv", "no formula")
def formula_as_module(study: Study) -> Found:
    study.add_model(MODULE.format(name="=cmd"))
    source = study.root / "tests/study/models/bad.py"
    source.write_text(source.read_text().replace("torch.nn.Sequential(Named())", "Named()"))
    outcome = study.snakemake()
    if outcome.code != 0:
        return refused(outcome, "bad")
    found = formulas(study.results / "modules.csv")
    return held(not found, f"formulas: {found}", POOR)
