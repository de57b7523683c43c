"""Pins, schemas and documents say the same thing."""

import ast
import re
import subprocess
import sys
import tomllib
from dataclasses import asdict

import pytest
import yaml
from opcost import __version__
from opcost.configuration import read_schema
from opcost.rows import schemas
from opcost.study import ClusterRequest, ExtractionSettings, MeasurementSettings
from opcost.target import Target

from tests.documented_commands import check
from tests.documents import ROOT, pages


def pins(text):
    return set(re.findall(r"^\s*(?:- )?([A-Za-z0-9_.-]+==[^\s#]+)", text, re.MULTILINE))


def test_the_conda_environment_has_the_pins_of_the_requirements():
    wanted = pins((ROOT / "requirements.txt").read_text())
    for path in (ROOT / "envs").glob("*.yaml"):
        found = pins(path.read_text())
        assert found == wanted, f"copy the lines of requirements.txt into {path.name}"


def test_the_library_asks_for_nothing_that_is_not_pinned():
    pinned = {
        pin.partition("==")[0].lower() for pin in pins((ROOT / "requirements.txt").read_text())
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = [*project["dependencies"], *extras["measure"], *extras["report"]]
    asked = {re.split(r"[>=]", name)[0].lower() for name in names} - {"opcost[report]"}
    assert asked <= pinned
    assert pinned - asked == {"pygments"}  # Snakemake's report needs Pygments


def schema_properties(schema, path=""):
    for name, child in schema.get("properties", {}).items():
        yield f"{path}{name}", child
        yield from schema_properties(child, f"{path}{name}.")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schema_properties(schema[key], path)


@pytest.mark.parametrize("name", ["config", "model", "operator"])
def test_every_key_is_described_and_documented(name):
    schema = read_schema(name)
    guide = (ROOT / "config/README.md").read_text()
    properties = dict(schema_properties(schema))
    assert properties
    for path, child in properties.items():
        assert child.get("description"), f"{name}.schema.yaml: {path} has no description"
        key = path.rpartition(".")[2]
        assert f"`{key}`" in guide, f"config/README.md does not mention `{key}`"


def test_every_schema_is_closed():
    for path in (ROOT / "workflow/schemas").glob("*.yaml"):
        assert read_schema(path.name.partition(".")[0])["additionalProperties"] is False


def test_settings_of_the_schema_are_those_of_the_code():
    schema = read_schema("config")
    measurement = schema["properties"]["measurement"]["properties"]
    target = schema["properties"]["targets"]["additionalProperties"]["properties"]
    assert set(measurement) == set(MeasurementSettings.__dataclass_fields__)
    cluster = target["cluster"]["properties"]
    defaults = {name: each.get("default") for name, each in target.items() if name != "cluster"}
    assert Target("auto", 1, False) == Target(**defaults | {"device": "auto"})
    assert set(cluster) == set(ClusterRequest.__dataclass_fields__)
    extraction = schema["properties"]["extraction"]["properties"]
    defaults = {name: entry["default"] for name, entry in extraction.items()}
    assert defaults == asdict(ExtractionSettings())


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        (
            schemas.OPERATOR,
            "tuple_id operator canonical_json target status time_s time_ci_low_s time_ci_high_s "
            "power_w energy_j flops bytes converged stop_reason flags",
        ),
        (
            schemas.COMPARISON,
            "model target estimate_time_s end_to_end_time_s time_relative_error estimate_energy_j "
            "end_to_end_energy_j energy_relative_error coverage_flops trust time_reason",
        ),
    ],
)
def test_columns_that_others_rely_on_exist(schema, columns):
    assert set(columns.split()) <= set(schema.names)


def test_links_in_the_documents_lead_somewhere():
    for document in pages():
        for link in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (document.parent / link).exists(), f"{document.name} links to {link}"


def test_the_public_host_runs_the_same_commands():
    jobs = yaml.safe_load((ROOT / ".github/workflows/checks.yaml").read_text())["jobs"]
    script = (ROOT / ".ci/run").read_text()
    commands = re.findall(r"^(?:make|beside) ([\w-]+)$", script, re.MULTILINE)
    assert sorted(jobs["repository"]["strategy"]["matrix"]["command"]) == sorted(commands)


def test_the_public_host_runs_a_study_in_conda_environments():
    jobs = yaml.safe_load((ROOT / ".github/workflows/checks.yaml").read_text())["jobs"]
    *_, command = (step.get("run", "") for step in jobs["conda"]["steps"])
    check(command)
    assert "snakemake --cores 1 --software-deployment-method conda " in command


def test_every_rule_with_a_job_names_the_environment():
    for path in (ROOT / "workflow/rules").glob("*.smk"):
        for rule in re.split(r"^(?:rule|checkpoint) ", path.read_text(), flags=re.MULTILINE)[1:]:
            if re.search(r"^    (?:shell|script):", rule, re.MULTILINE):
                assert '    conda:\n        "../../envs/opcost.yaml"\n' in rule, rule.split(":")[0]


def test_a_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__


def test_tests_that_the_guide_names_exist():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"\b(test_\w+)\.py(?:::|`: `)(\w+)", guide)
    assert named
    for module, name in named:
        assert f"def {name}(" in (ROOT / f"tests/{module}.py").read_text(), f"{module}: {name}"


def test_documents_that_other_files_name_exist():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix not in (".md", ".svg", ".png", ".parquet", ".xz", ".zip") and path.is_file():
            for document in re.findall(r"\bdocs/[\w/]+\.md", path.read_text(encoding="utf-8")):
                assert (ROOT / document).exists(), f"{name} names {document}"


def test_every_final_file_has_a_caption():
    used = set()
    for rules in (ROOT / "workflow/rules").glob("*.smk"):
        text = re.sub(r"\s+", " ", rules.read_text())
        for arguments in re.findall(r"report\(((?:[^()]|\([^()]*\))*)\)", text):
            caption = re.search(r'caption="(.*?)"', arguments)
            assert caption, f"{rules.name}: report({arguments}) has no caption"
            used.add((rules.parent / caption.group(1)).resolve())
    captions = set((ROOT / "workflow/report").glob("*.rst")) - {
        ROOT / "workflow/report/workflow.rst"
    }
    assert used == captions


KNOW_KINDS = {
    "devices/kinds.py", "devices/processor.py", "devices/gpu.py", "energy/meters.py",
    "models/conditions.py",  # autocast has a switch for each
    "tuples/work.py",  # reckons on the processor, whatever the target
    "devices/machine.py",  # a key of torch/version.py
    "target.py",  # declares which kind has a setting
    "memory.py",  # a controller of control groups
}  # fmt: skip


def test_no_other_module_asks_for_a_kind_of_device_by_name():
    package = ROOT / "scripts/opcost"
    files = [*package.rglob("*.py"), *ROOT.glob("workflow/**/*.smk"), *ROOT.glob("scripts/*.py")]
    asking = [path for path in files if re.search(r'"(cpu|cuda)(:\d)?"', path.read_text())]
    known = {package / name for name in KNOW_KINDS}
    assert set(asking) <= known


def test_energy_needs_no_pytorch():
    modules = [f"opcost.energy.{path.stem}" for path in ROOT.glob("scripts/opcost/energy/*.py")]
    code = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("module", ["planning.target_plan", "runs.answer", "report.page"])
def test_what_plans_and_tabulates_does_not_wait_for_pytorch(module):
    code = f"import sys, opcost.{module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


WITHOUT_DRAWING = """
import sys
for name in ("altair", "vl_convert", "itables"):
    sys.modules[name] = None  # importing it fails
"""


@pytest.mark.parametrize("script", sorted(path.name for path in ROOT.glob("scripts/*.py")))
def test_all_tables_are_made_without_the_packages_of_the_report(script):
    tree = ast.parse((ROOT / "scripts" / script).read_text())
    imports = [each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    code = WITHOUT_DRAWING + "\n".join(map(ast.unparse, imports))
    status = subprocess.run([sys.executable, "-c", code], capture_output=True).returncode
    assert (status == 0) == (script != "report.py")
