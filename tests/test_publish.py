"""A published folder can be uploaded as it is, and names no machine, user or card."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import mlcroissant
import pytest
import yaml
from click.testing import CliRunner
from opcost.commands import main
from opcost.databases.database import REFERENCE, read_database
from opcost.databases.merging import merge
from opcost.databases.model_ratios import read_ratios
from opcost.energy.sensor import read_document
from opcost.publishing import identity
from opcost.publishing.about import LICENSES
from opcost.publishing.cleaning import IDS, cleaned
from opcost.rows import comparability, records, schemas
from opcost.rows.runs import ModelRatio

from tests.comparisons import database
from tests.documented_commands import check
from tests.documents import blocks

ADA = "Lovelace, Ada 0000-0002-1825-0097"
GPU, OTHER_GPU, MACHINE = "65b42312d690ef56", "c01f52d794d703e6", "0a1b2c3d4e5f6071"
HOST, USER, SERIAL = "node07.cluster.example", "marie", "SN-4711-ABCD"
SOURCE = ("--source", "Reference data of opcost 0.1")
UUID = "12345678-1234-1234-1234-123456789abc"
KNOWN = {
    "device_name": "NVIDIA H100",
    "device_uuid_hash": GPU,
    "machine_id_hash": MACHINE,
    "driver_version": "580.1",
    "workflow_commit": "14dd24435787+",
}


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine with names and ids that are known."""
    serial = tmp_path / "product_serial"
    serial.write_text(f"{SERIAL}\n")
    monkeypatch.setattr("platform.node", lambda: HOST)
    monkeypatch.setattr("getpass.getuser", lambda: USER)
    monkeypatch.setenv("HOME", f"/home/{USER}")
    monkeypatch.setattr(identity, "SERIALS", (str(serial),))
    monkeypatch.setattr(identity, "device_uuids", lambda: ["GPU-5f1d2c3b-0001"])
    monkeypatch.setattr(identity, "device_serials", lambda: ["1650523000123"])
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def study(tmp_path, tiny_tuples):
    """Makes the database of a study on a GPU, with changes."""

    def study(name="study", target="h100", **changes):
        (tmp_path / name).mkdir(exist_ok=True)
        path = tmp_path / name / "database.parquet"
        return database(path, tiny_tuples, target, **{**KNOWN, **changes})

    return study


def publish(*arguments, authors=(ADA,), folder="published"):
    named = [word for author in authors for word in ("--author", author)]
    return CliRunner().invoke(main, ["publish", folder, *map(str, arguments), *named])


def published(*arguments, **how):
    result = publish(*arguments, **how)
    assert result.exit_code == 0, result.output
    return Path(how.get("folder", "published"))


def rows_of(folder):
    [file] = (folder / "data").glob("*.parquet")
    return read_database(file).to_pylist()


def everything(folder):
    """All that a folder says, as text."""
    parquet = {*folder.rglob("*.parquet")}
    others = {path for path in folder.rglob("*") if path.is_file()} - parquet
    texts = [str(rows_of(folder)), *(str(records.metadata(path)) for path in parquet)]
    return "".join([*texts, *(path.read_text(encoding="utf-8") for path in others)])


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The data of two GPUs and a processor, published."""
    folder = tmp_path_factory.mktemp("reference") / "published"
    return published("h100", "h200", "xeon", *SOURCE, folder=str(folder))


def test_a_folder_has_data_sensors_card_metadata_citation_licence_and_sums(reference):
    found = {str(path.relative_to(reference)) for path in reference.rglob("*") if path.is_file()}
    assert found == {
        *(f"data/{path.name}" for path in REFERENCE.glob("*.parquet")),
        *("sensors/h100.json", "sensors/h200.json"),
        *("README.md", "croissant.json", "CITATION.cff", "LICENSE", "SHA256SUMS"),
    }


def test_sha256sum_finds_every_file_as_it_is(reference):
    checked = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(checked, cwd=reference, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == 9


def test_croissant_is_valid_and_reads_every_row(reference, caplog):
    dataset = mlcroissant.Dataset(reference / "croissant.json")
    assert not [each.message for each in caplog.records if each.levelname != "DEBUG"]
    for record_set in dataset.metadata.record_sets:
        name = record_set.uuid
        rows = read_database(reference / "data" / f"{name}.parquet").to_pylist()
        read = list(dataset.records(name))
        assert len(read) == len(rows)
        for own, row in zip(read, rows, strict=True):
            assert own[f"{name}/time_s"] == row["time_s"]
            assert own[f"{name}/block_time_s"] == row["block_time_s"]
            assert own[f"{name}/description"].decode() == row["description"]


def test_fields_of_croissant_have_the_meanings_of_the_columns(reference):
    document = json.loads((reference / "croissant.json").read_text())
    for record_set in document["recordSet"]:
        meanings = {each["name"]: each["description"] for each in record_set["field"]}
        assert meanings.items() <= schemas.DESCRIPTIONS["database"].items()
        assert schemas.DESCRIPTIONS["database"].keys() - meanings == {"meter_missing"}  # a map


def front_matter(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    return yaml.safe_load(text.split("---\n")[1])


def test_the_front_matter_says_where_the_rows_are_and_of_which_types(reference):
    front = front_matter(reference)
    assert front["license"] == "cc-by-4.0"
    assert front["size_categories"] == ["n<1K"]
    assert [each["default"] for each in front["configs"]] == [True, False, False]
    for config, info in zip(front["configs"], front["dataset_info"], strict=True):
        schema = read_database(reference / config["data_files"]).schema
        features = {each["name"]: each.get("list") or each["dtype"] for each in info["features"]}
        assert list(features) == config["columns"]
        assert {*schema.names} - {*features} == {"meter_missing"}  # a map
        assert features["power_sample_w"] == features["time_s"] == "float64"
        assert features["measured_at"] == "timestamp[us, tz=UTC]"


def test_the_card_counts_what_the_rows_have(reference):
    card = (reference / "README.md").read_text(encoding="utf-8")
    of_h100 = "NVIDIA H100 80GB HBM3 | 2.11.0+cu130 | 13.0 | 580.159.04 | 190 | 190 | 190"
    of_xeon = "Intel(R) Xeon(R) Processor | 2.15.0+cu132 | none | none | 112 | 112 | 0"
    assert f"| h100 | {of_h100} | 2026-11-26 |" in card
    assert f"| xeon | {of_xeon} | 2026-11-21 |" in card
    assert "opcost 0.1.0 (protocol 4, 5)" in card
    assert re.search(r"\| launch_bound \| 165 \| the host needs longer", card)
    assert "## Failures\n\nNone." in card


def test_failures_are_counted_with_their_reasons(study):
    failed = {"status": "error", "error": "no | kernel", **dict.fromkeys(schemas.TIME.names)}
    card = (published(study(**failed)) / "README.md").read_text()
    assert re.search(r"\| error \| no \\\| kernel \| \d+ \|", card)


def test_the_examples_of_the_card_run(reference, monkeypatch):
    monkeypatch.chdir(reference)
    for block in blocks(reference / "README.md"):
        if block.language == "python":
            exec(block.text, {})
        elif block.language == "sql":
            assert len(duckdb.sql(block.text).fetchall()) == 10
        else:
            check(block.text)


def test_a_citation_names_authors_title_and_licence(reference):
    citation = yaml.safe_load((reference / "CITATION.cff").read_text())
    [author] = citation["authors"]
    assert author == {
        "family-names": "Lovelace",
        "given-names": "Ada",
        "orcid": "https://orcid.org/0000-0002-1825-0097",
    }
    assert citation["type"] == "dataset"
    assert citation["license"] == "CC-BY-4.0"
    assert citation["title"].startswith("Time and energy of PyTorch operators on ")
    assert "CC-BY-4.0" in (reference / "LICENSE").read_text()


@pytest.fixture
def theirs(study, tmp_path):
    """Rows of this study and of reference data, merged."""
    merge([study(), REFERENCE / "h100_torch2.11.0_2026-11-26.parquet"], tmp_path / "p3.parquet")
    return tmp_path / "p3.parquet"


@pytest.mark.parametrize("which", ["reference", "merged with it", "merged"])
def test_data_by_others_are_published_with_their_source_alone(which, theirs, merged):
    result = publish({"reference": "h100", "merged": merged}.get(which, theirs))
    assert result.exit_code == 1
    reference = "h100_torch2.11.0_2026-11-26 (reference data of opcost, CC0-1.0)"
    assert (reference in result.output) == (which != "merged")
    assert "name it with --source" in result.output
    assert not Path("published").exists()


def test_card_citation_and_licence_name_the_origin_of_data_by_others(theirs):
    folder = published(theirs, "--source", "Babbage (2025)", "--source", "own measurements")
    for name in ("README.md", "CITATION.cff", "LICENSE", "croissant.json"):
        text = " ".join((folder / name).read_text().split())
        assert "h100_torch2.11.0_2026-11-26 (reference data of opcost, CC0-1.0)" in text
        assert "Babbage (2025); own measurements; the authors are those of this" in text


def test_without_energy_and_sensors_none_is_described(study):
    folder = published(study(**dict.fromkeys(schemas.ENERGY.names)))
    _, _, card = (folder / "README.md").read_text().split("---\n", 2)
    assert "sensors/" not in card
    assert "energy_j" not in card
    citation = yaml.safe_load((folder / "CITATION.cff").read_text())
    croissant = json.loads((folder / "croissant.json").read_text())
    for words in (front_matter(folder)["tags"], citation["keywords"], croissant["keywords"]):
        assert "latency" in words
        assert "energy" not in words


@pytest.mark.parametrize("license", LICENSES)
def test_a_licence_is_the_same_everywhere(license, study):
    folder = published(study(), "--license", license, "--title", "Mine")
    assert front_matter(folder)["license"] == LICENSES[license]
    assert license in (folder / "LICENSE").read_text()
    assert license in json.loads((folder / "croissant.json").read_text())["license"]
    assert yaml.safe_load((folder / "CITATION.cff").read_text())["title"] == "Mine"


def test_nothing_measured_is_changed(study):
    path = study()
    before, after = read_database(path).to_pylist(), rows_of(published(path))
    assert len(before) == len(after)
    pairs = list(zip(before, after, strict=True))
    changed = {name for old, new in pairs for name in old if old[name] != new[name]}
    assert changed == {"device_uuid_hash", "machine_id_hash", "workflow_commit"}


def test_cards_stay_apart_without_their_ids_and_the_same_card_is_the_same(study):
    one, same, other = study("one"), study("two"), study("three", device_uuid_hash=OTHER_GPU)
    folder = published(one, same, other)
    databases = [
        read_database(folder / f"data/{name}.parquet").to_pylist()
        for name in ("database", "database_2", "database_3")
    ]
    found = [{tuple(row[name] for name in IDS) for row in rows} for rows in databases]
    [gpu, machine], [other_gpu, same_machine] = *found[0], *found[2]
    assert found[0] == found[1]
    assert machine == same_machine
    assert len({gpu, other_gpu, GPU, OTHER_GPU}) == 4


def test_two_publications_cannot_be_linked(study):
    path = study()
    ids = {
        row["device_uuid_hash"]
        for folder in ("one", "two")
        for row in rows_of(published(path, folder=folder))
    }
    assert len(ids) == 2


def test_a_sensor_has_the_id_of_its_card_and_those_of_other_cards_stay_away(study):
    path = study()
    of_the_card = {**KNOWN, "schema_version": 1, "readings": {}, "counter": {"refresh_s": None}}
    of_the_card |= {"meter": "nvml", "meter_reason": None, "idle_power_w": 70.0}
    of_the_card["reasons"] = {"lag": f"no /home/{USER}/calibration.csv"}
    others = {
        "h100/cuda0-9298b538": of_the_card,
        "other/cuda0-9298b539": {**of_the_card, "device_uuid_hash": OTHER_GPU},
        "without/cuda0-9298b540": {**of_the_card, "meter": None, "meter_reason": "none"},
    }
    for name, document in others.items():
        (path.parent / name).mkdir(parents=True)
        (path.parent / name / "sensor.json").write_text(json.dumps(document))
    folder = published(path)
    [sensor] = (folder / "sensors").iterdir()
    assert sensor.name == "h100.json"
    document = read_document(sensor)
    assert document["device_uuid_hash"] == rows_of(folder)[0]["device_uuid_hash"] != GPU
    assert document["reasons"] == {"lag": "no <path>"}
    assert document["idle_power_w"] == 70.0


def test_what_could_identify_is_in_no_file(study):
    reason = f"no module x in '/home/{USER}/my nets/secret.py' or /home/{USER}/b.py"
    variables = f"je_malloc_conf=prof_prefix:/home/{USER}/prof"
    folder = published(study(energy_reason=reason, process_environment=variables))
    text = everything(folder)
    for word in (GPU, MACHINE, "14dd24435787", f"/home/{USER}", USER, "secret", SERIAL):
        assert word not in text, word


def test_a_target_under_former_conditions_loses_the_digest_of_its_device(study):
    name = "local/cpu-1thread-torch2.15.0-9298b538"
    [target] = {row["target"] for row in rows_of(published(study(target=name)))}
    assert re.fullmatch(r"local/cpu-1thread-torch2\.15\.0-[0-9a-f]{8}", target)
    assert target != name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot open /home/marie/x.py: no", "cannot open <path>"),
        ("in '/data/my nets/x.py', line 3", "in '<path>"),
        ("/home/marie/secret project/x.py", "<path>"),
        ('"/home/marie/it\'s here/marie"', '"<path>'),
        ('{"source": "/data/my x.csv", "n": 1}', '{"source": "<path>", "n": 1}'),
        ('["\\u002fhome/x", 1]', '["<path>", 1]'),
        ('{"/home/x": 1}', '{"<path>": 1}'),
        ("[Errno 2] No such file: '/x'", "[Errno 2] No such file: '<path>"),
        ("~/x and file:///srv/x", "<path>"),
        ("file:///srv/x", "file:<path>"),
        ("~marie/x", "<path>"),
        ("~5/home/marie", "<path>"),
        ("./marie/x", "<path>"),
        ("../../marie/x", "<path>"),
        ("//srv/share/marie", "<path>"),
        ("gcc -I/home/marie", "gcc <path>"),
        ("nets/marie/x", "<path>"),
        ("marie/x.py", "<path>"),
        ("/sys/../home/marie", "<path>"),
        ("/sys/class/x:/home/marie", "/sys/class/x:<path>"),
        ("/dev/shm/marie", "<path>"),
        (r"C:\Users\marie\x", "C:<path>"),
        (r"\\srv\marie", "<path>"),
        ("s3://marie-bucket/x", "s3:<path>"),
        ("https://srv/~marie/x", "https:<path>"),
        ("prof_prefix:/tmp/x,lg:1", "prof_prefix:<path>"),
        (f"MIG-GPU-{UUID}/1/0, GPU-5f1d2c3b", "<id>, <id>"),
        (f"device {UUID.replace('-', '')}", "device <id>"),
        (f"uuid={UUID.upper()}", "uuid=<id>"),
        ("from 10.1.2.3:8080 to fe80::1a:2b%eth0.", "from <address>:8080 to <address>%eth0."),
        ("2001:db8:0:0:1:2:3:4 and ::1", "<address> and <address>"),
        ("mac 00:1A:2b:3c:4d:5e, 00-1a-2b-3c-4d-5e", "mac <address>, <address>"),
    ],
)
def test_paths_with_what_follows_ids_and_addresses_are_removed(text, expected):
    assert cleaned(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "/sys/class/powercap lists no RAPL package",
        "cannot read /sys/class/powercap/intel-rapl:0/energy_uj.",
        "see https://example.org/a/b",
        "3 GB/s and 1 / 2, a/b, 0.5/1.5",
        "J/s, 1/2, float32/bfloat16 and and/or",
        "~10 ms at 18:22:57 on 2026-11-27T18:22:57",
        "driver 580.159.04, torch 2.11.0+cu130, GPU-bound",
        "Linux-5.15.167.4-microsoft-standard-WSL2",
        "conv2d(1x3x8x8, 4x3x3x3, padding=[1,1])",
        "std::runtime_error in aten::add",
    ],
)
def test_texts_without_paths_and_ids_stay(text):
    assert cleaned(text) == text


def test_ids_and_addresses_of_other_machines_are_in_no_file(study):
    variables = {"process_environment": f'{{"CUDA_VISIBLE_DEVICES": "GPU-{UUID}"}}'}
    failed = {
        "status": "error",
        "error": f"{UUID} at 10.1.2.3",
        **dict.fromkeys(schemas.TIME.names),
    }
    folder = published(study(**variables, **failed, description="view(/home/eve/x y)"))
    [row, *_] = rows_of(folder)
    assert row["process_environment"] == '{"CUDA_VISIBLE_DEVICES": "<id>"}'
    assert row["error"] == "<id> at <address>"
    assert row["description"] == "view(<path>"
    assert UUID not in everything(folder)


@pytest.mark.parametrize(
    ("column", "text", "found", "what"),
    [
        ("target", "node07_1thread", "node07", "host name"),
        ("energy_reason", f"no sensor on {HOST.upper()}", HOST.upper(), "host name"),
        ("target", "maries", USER, "user name"),
        ("energy_reason", "marieNet marie2", USER, "user name"),
        ("target", "eves", None, None),
        ("energy_reason", r'{"x": "\u0065ve\n"}', "eve", "host name"),
        ("target", USER, USER, "user name"),
        ("energy_reason", f"serial {SERIAL}", SERIAL, "serial number or UUID"),
        ("target", "GPU-5f1d2c3b-0001", "GPU-5f1d2c3b-0001", "serial number or UUID"),
        ("os", "board 1650523000123", "1650523000123", "serial number or UUID"),
        ("energy_reason", f"no device {GPU}", GPU, "digest of an id"),
        ("parameters", ["weight", USER], USER, "user name"),
    ],
)
def test_a_name_that_is_left_is_refused_with_its_place(
    column, text, found, what, study, monkeypatch
):
    if "ve" in text and found in (None, "eve"):
        monkeypatch.setattr("platform.node", lambda: "eve")
    target = {"target": text} if column == "target" else {column: text}
    result = publish(study(**target))
    if found is None:
        assert result.exit_code == 0, result.output
        return
    assert result.exit_code == 1
    assert "nothing is published" in result.output
    assert f"data/database.parquet, column {column}: '{found}' ({what})" in result.output
    assert f"--allow {found}" in result.output
    assert not Path("published").exists()
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]


def test_names_in_metadata_are_found(tmp_path, tiny_tuples):
    path = tmp_path / "database.parquet"
    database(path, tiny_tuples, ratios=[ModelRatio("net_of_marie", False, 0.1, None)], **KNOWN)
    result = publish(path)
    assert "metadata opcost.model_ratios: 'marie' (user name)" in result.output


def test_a_name_that_identifies_nobody_can_be_allowed(study):
    path = study(target="node07")
    assert publish(path).exit_code == 1
    assert rows_of(published(path, "--allow", "node07"))[0]["target"] == "node07"


def test_only_exactly_the_allowed_name_is_published(study):
    path = study(target=f"net_of_{USER}")
    assert f"--allow {USER}" in publish(path, "--allow", f"my-{USER}-x").output
    published(path, "--allow", USER.upper())


def test_an_author_may_have_the_user_s_name(study):
    path = study(target="gpu_of_marie")
    published(path, authors=["Curie, Marie"])


@pytest.mark.parametrize("author", ["Ada Lovelace", "Lovelace, Ada 0000", "Lovelace,", ""])
def test_an_author_is_a_family_name_a_comma_and_a_given_name(author, study):
    result = publish(study(), authors=[author])
    assert result.exit_code == 1
    assert "write a family name, a comma and a given name" in result.output
    assert not Path("published").exists()


def test_without_an_author_nothing_is_published(study):
    result = publish(study(), authors=[])
    assert result.exit_code == 2
    assert "Missing option '--author'" in result.output


def test_by_default_the_study_here_is_published(study):
    path = study("results")
    assert path == Path("results/database.parquet").resolve()
    published()


def test_a_published_folder_is_replaced_and_any_other_is_kept(study):
    path = study()
    Path("published").mkdir()  # empty
    folder = published(path)
    published(path, "--title", "Second")
    assert "# Second" in (folder / "README.md").read_text()
    (folder / "notes.txt").write_text("mine")
    assert "holds other files" in publish(path).output
    assert (folder / "notes.txt").read_text() == "mine"
    (folder / "notes.txt").unlink()
    (folder / "README.md").write_text("edited")
    assert publish(path).exit_code == 1
    assert (folder / "README.md").read_text() == "edited"
    Path("file").write_text("mine")
    assert publish(path, folder="file").exit_code == 1
    assert Path("file").read_text() == "mine"


def test_a_stop_leaves_the_former_folder(study):
    path = study()
    folder = published(path)
    before = (folder / "SHA256SUMS").read_text()
    damaged = path.with_name("damaged.parquet")
    damaged.write_bytes(path.read_bytes()[:-20] + b"x" * 20)
    result = publish(path, damaged)
    assert result.exit_code == 1
    assert "damaged.parquet" in result.output
    assert (folder / "SHA256SUMS").read_text() == before
    assert not [each for each in Path().iterdir() if each.name.startswith(".")]


def test_a_database_without_rows_is_refused(tmp_path):
    records.write(tmp_path / "empty.parquet", schemas.DATABASE, [])
    assert "has no row" in publish(tmp_path / "empty.parquet").output


@pytest.fixture
def merged(study, tmp_path):
    """Two states of a target under different drivers, and another target, merged; with ratios."""
    path = tmp_path / "merged.parquet"
    others = [study("one"), study("two", driver_version="590.1"), study("three", target="other")]
    merge(others, path)
    return path


def test_a_merged_database_stays_one(merged):
    folder = published(merged, *SOURCE)
    [file] = (folder / "data").iterdir()
    before, after = read_database(merged), read_database(file)
    assert after.schema.names == before.schema.names
    for name in ("conditions_id", "sources"):
        old, new = (each[name].to_pylist() for each in (before, after))
        assert not {*map(str, old)} & {*map(str, new)}
        assert len({*map(str, old)}) == len({*map(str, new)}) == 3
    for row in after.to_pylist():
        assert row["conditions_id"] == comparability.conditions_id(row)


def test_ratios_of_models_follow_their_targets(tmp_path, tiny_tuples):
    ratios = [ModelRatio("tiny", False, 0.1, None)]
    path = database(tmp_path / "a.parquet", tiny_tuples, "h100", ratios=ratios, **KNOWN)
    assert read_ratios(published(path) / "data/a.parquet") == read_ratios(path)
    merge([path], tmp_path / "merged.parquet")
    folder = published(tmp_path / "merged.parquet", folder="second")
    [row, *_] = rows_of(folder)
    assert read_ratios(folder / "data/merged.parquet") == {row["conditions_id"]: ratios}


@pytest.mark.parametrize("which", ["of a study", "merged"])
def test_published_rows_are_a_database_for_every_command(which, study, merged):
    folder = published(study() if which == "of a study" else merged, *SOURCE)
    one = rows_of(folder)[0].get("conditions_id")
    chosen = ["--before-conditions", one, "--after-conditions", one] if one else []
    [file] = map(str, (folder / "data").iterdir())
    shutil.copy(file, "copy.parquet")
    for arguments, codes in {
        ("query", file, "--limit", "2"): {0},
        ("explain", "resnet18", "--batch", "1", "--database", file): {0, 3},
        ("diff", file, "copy.parquet", *chosen): {0, 4},
        ("merge", file, "-o", "again.parquet"): {0},
        ("export", file, "rows.csv"): {0},
        ("report", file, "-o", "page.html"): {0},
    }.items():
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code in codes, (arguments, result.output)
