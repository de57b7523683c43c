"""Code in the documents runs, commands in them exist, and the reference says what the code says."""

import contextlib
import re
import shutil

import click
import jsonschema
import pytest
import yaml
from opcost.commands import main
from opcost.configuration import read_schema
from opcost.databases.merging import merge
from opcost.models.axes import expand
from opcost.rows import schemas
from opcost.study import without_axes

from docs.reference.generate.columns_page import columns_page
from docs.reference.generate.command_line_page import command_line_page
from docs.reference.generate.configuration_page import configuration_page
from docs.reference.generate.flags_page import flags_page
from tests.documented_commands import check
from tests.documents import ROOT, blocks, commands_in_text, in_language, pages

LANGUAGES = {"python", "sh", "console", "yaml", "text", "{eval-rst}"}
# That of the others is run on simulated sensors: test_from_other_tools.py, test_power_limit.py.
PYTHON = [
    page
    for page in pages()
    if any(each.language == "python" for each in blocks(page)) and page.stem != "from_other_tools"
]
SHELL = [*in_language("sh"), *(each for page in pages() for each in commands_in_text(page))]


@pytest.fixture(scope="session")
def finished_study(finished, tmp_path_factory):
    """A folder as it is after a study, for what pages do with results."""
    study = finished.copied(tmp_path_factory.mktemp("documented") / "checkout")
    database = study.root / "results" / "database.parquet"
    shutil.copy(database, study.root / "other.parquet")
    for day in ("monday", "tuesday"):
        (study.root / day).mkdir()
        shutil.copy(database, study.root / day)
    merge([database, study.root / "other.parquet"], study.root / "merged")
    return study.root


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_on_a_page_runs_from_top_to_bottom(page, finished_study, monkeypatch):
    monkeypatch.chdir(finished_study)
    names = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python":
            # Empty lines put the lines of a traceback where the page has them.
            source = "\n" * block.line + block.text
            exec(compile(source, str(page), "exec"), names)


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_examples_in_the_help_of_a_command_exist_with_their_options(name):
    command = main.get_command(click.Context(main), name)
    examples = re.findall(r"^ *(opcost (?:.+\\\n)*.+)$", command.help, re.MULTILINE)
    assert examples
    for example in examples:
        check(example)


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_no_option_of_a_command_takes_a_number_that_is_not_finite(name):
    for each in main.get_command(click.Context(main), name).params:
        for value in ("nan", "inf", "-inf"):
            with contextlib.suppress(click.BadParameter):
                assert not isinstance(each.type.convert(value, each, None), float)


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_on_a_page_exist_with_their_options(block):
    check(block.text)


@pytest.mark.parametrize("block", in_language("console"), ids=str)
def test_commands_with_what_they_print_exist_with_their_options(block):
    for command in re.findall(r"^\$ (.+)$", block.text, re.MULTILINE):
        check(command)


@pytest.mark.parametrize("block", in_language("yaml"), ids=str)
def test_yaml_on_a_page_is_part_of_a_study_or_a_model(block):
    document = yaml.safe_load(block.text)
    name = "model" if {"model", "factory"} & document.keys() else "config"
    name = "operator" if "operator" in document else name
    schema = dict(read_schema(name))
    if name == "config":
        del schema["required"]  # a page shows the part that it speaks of
    if name == "config" and (targets := document.get("targets")):
        document["targets"] = without_axes(targets)
    for point in expand("net", document, str(block), schema["properties"]):
        jsonschema.Draft202012Validator(schema).validate(point.config)


def test_every_block_is_in_a_language_that_is_tested_here():
    for page in pages():
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{block} is in {block.language}"


@pytest.mark.parametrize(
    ("name", "generated"),
    [
        ("columns.md", columns_page),
        ("configuration.md", configuration_page),
        ("command_line.md", command_line_page),
        ("flags.md", flags_page),
    ],
)
def test_reference_pages_say_what_the_code_says(name, generated):
    written = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert written == generated(), f"docs/reference/{name} is out of date; to mend it: make docs"


def columns_in(sections, name):
    """The columns that a section shows, with those of the sections that it refers to."""
    section = sections[name]
    columns = set(re.findall(r"^\| `(\w+)`( ±)? \|", section, re.MULTILINE))
    for other in re.findall(r"\[(.+?)\]\(#[\w-]+\)", section.partition("\n|")[0]):
        columns |= columns_in(sections, other)
    return columns


@pytest.mark.parametrize("record", sorted(schemas.DESCRIPTIONS))
def test_each_record_has_all_of_its_columns_on_the_page(record):
    text = (ROOT / "docs/reference/columns.md").read_text(encoding="utf-8")
    sections = {}
    for heading in ("\n##+ ", "\n## "):  # a section contains its subsections
        sections |= dict(part.split("\n", 1) for part in re.split(heading, text)[1:])
    names = set(schemas.DESCRIPTIONS[record])
    limits = {name for name in names if "_ci_low" in name or "_ci_high" in name}
    marked = {re.sub("_ci_(low|high)", "", name) for name in limits}
    expected = {(name, " ±" if name in marked else "") for name in names - limits}
    assert columns_in(sections, record) == expected
