"""A query gives the rows that fit, by what their operators are, and says what it does not know."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opcost.commands import main
from opcost.databases.merging import merge
from opcost.errors import OpcostError
from opcost.queries.query import DEFAULT_COLUMNS, Filter, query
from opcost.rows import records, schemas
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec, id_of

IMAGE, WEIGHT = TensorSpec((1, 64, 56, 56), "float32"), TensorSpec((32, 64, 3, 3), "float32")
TUPLES = {
    "conv": OperatorTuple("aten.conv2d.default", (("input", IMAGE), ("weight", WEIGHT))),
    "half": OperatorTuple(
        "aten.conv2d.default",
        (("input", TensorSpec((1, 64, 56, 28), "float16")), ("weight", WEIGHT)),
    ),
    "cat": OperatorTuple(
        "aten.cat.default", (("dim", 1), ("tensors", (TensorSpec((2, 5), "float32"), IMAGE)))
    ),
    "add": OperatorTuple(
        "aten.add.Tensor", (("other", TensorSpec((), "float32")), ("self", IMAGE))
    ),
    "nms": OperatorTuple("torchvision.nms.default", (("boxes", TensorSpec((56, 4), "float32")),)),
}


def row(name, **changes):
    operator_tuple = TUPLES[name]
    return {
        "tuple_id": operator_tuple.tuple_id,
        "operator": operator_tuple.operator,
        "canonical_json": operator_tuple.canonical_json,
        "description": str(operator_tuple),
        "target": "local",
        "status": "ok",
        "flags": [],
    } | changes


ROWS = [
    row("conv", time_s=2e-3, time_ci_low_s=1.9e-3, time_ci_high_s=2.1e-3, flops=100),
    row("half", time_s=1e-3, target="h200", flags=["disturbed", "launch_bound"]),
    row("cat", time_s=3e-3, flags=["drifting"]),
    row("add", status="timeout", flags=None),
    row("nms", time_s=4e-3, block_time_s=[4e-3, 5e-3], meter_missing=[("clock", "no sensor")]),
]


@pytest.fixture
def path(tmp_path):
    records.write(tmp_path / "database.parquet", schemas.DATABASE, ROWS)
    return tmp_path / "database.parquet"


def found(path, **wanted):
    ids = query([path], Filter(**wanted))["tuple_id"].to_pylist()
    return [name for name, each in TUPLES.items() if each.tuple_id in ids]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["conv", "half", "cat", "add", "nms"]),
        ({"operators": ["conv2d"]}, ["conv", "half"]),
        ({"operators": ["aten.add.Tensor", "torchvision.nms"]}, ["add", "nms"]),
        ({"shapes": ["1x64x56x56"]}, ["conv", "cat", "add"]),
        ({"shapes": ["1x64x56x*"]}, ["conv", "half", "cat", "add"]),
        ({"shapes": ["scalar", "2x5"]}, ["cat", "add"]),
        ({"dtypes": ["float16"]}, ["half"]),
        ({"targets": ["h200"]}, ["half"]),
        ({"statuses": ["timeout"]}, ["add"]),
        ({"flags": ["drifting", "disturbed"]}, ["half", "cat"]),
        ({"unflagged": True}, ["conv", "add", "nms"]),
        ({"text": "CONV2D(1X64X56X56"}, ["conv"]),
        ({"tuple_ids": [TUPLES["cat"].tuple_id[:6]]}, ["cat"]),
        ({"operators": ["conv2d"], "unflagged": True}, ["conv"]),
    ],
    ids=str,
)
def test_rows_fit_if_all_that_is_asked_fits(path, wanted, names):
    assert found(path, **wanted) == names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wanted": Filter(operators=["conv2"])}, "no operator 'conv2'. Did you mean 'conv2d'"),
        ({"wanted": Filter(targets=["h20"])}, "no target 'h20'. Did you mean 'h200'"),
        ({"wanted": Filter(statuses=["bad"])}, "no status 'bad'. Allowed: crashed, error, ok, "),
        ({"wanted": Filter(flags=["disturbd"])}, "no flag 'disturbd'. Did you mean 'disturbed'"),
        ({"wanted": Filter(shapes=["1,64"])}, "'1,64' is not a shape"),
        ({"columns": ["flop"]}, "no column 'flop'. Did you mean 'flops'"),
        ({"sort": "tme_s"}, "no column 'tme_s'. Did you mean 'time_s'"),
        ({"sort": "flags"}, "cannot be sorted"),
    ],
)
def test_what_does_not_exist_is_an_error_that_names_what_is_like_it(path, arguments, message):
    with pytest.raises(OpcostError, match=message):
        query([path], **arguments)


def test_a_flag_of_another_version_that_a_database_holds_can_be_asked_for(tmp_path):
    path = tmp_path / "database.parquet"
    records.write(
        path, schemas.DATABASE, [*ROWS, ROWS[0] | {"target": "b", "flags": ["yet_unknown"]}]
    )
    assert len(query([path], Filter(flags=["yet_unknown"]))) == 1


def test_text_of_others_acts_on_no_terminal_and_forges_no_row(tmp_path):
    hostile = "\x1b[2J\x9b1m\r\u202eX\nFORGED  row"
    path = tmp_path / "database.parquet"
    rows = [row("conv", time_s=1e-3, description=hostile, error=hostile, parameters=[hostile])]
    records.write(path, schemas.DATABASE, [*rows, row("cat", time_s=1e-3)])
    merge([path], tmp_path / "merged.parquet")
    shown = ["--columns", "description,error,parameters"]
    for arguments in ([], shown, [*shown, "--json"], [*shown, "--csv"]):
        answer = CliRunner().invoke(main, ["query", str(path), *arguments])
        assert answer.exit_code == 0
        assert "FORGED" in answer.output
        assert all(character.isprintable() or character == "\n" for character in answer.output)
        if "--csv" not in arguments:  # which has lines within quotes
            assert not any(line.startswith("FORGED") for line in answer.output.splitlines())
    [line, _] = CliRunner().invoke(main, ["query", str(path), *shown, "--json"]).output.splitlines()
    assert json.loads(line)["description"] == hostile


def test_a_long_text_makes_no_wide_table(tmp_path):
    path = tmp_path / "database.parquet"
    rows = [row(name, time_s=1e-3, stop_reason="x") for name in ("conv", "cat")]
    records.write(path, schemas.DATABASE, [rows[0] | {"stop_reason": 10**6 * "x"}, rows[1]])
    answer = CliRunner().invoke(main, ["query", str(path), "--columns", "tuple_id,stop_reason"])
    assert len(answer.output) < 5_000


def test_a_tuple_that_is_described_by_nothing_is_named_with_its_file(tmp_path):
    path, text = tmp_path / "database.parquet", '{"arguments":[],"operator":"aten.cat.default"}'
    damaged = {"tuple_id": id_of(text), "canonical_json": text}
    records.write(path, schemas.DATABASE, [row("cat", time_s=1e-3) | damaged])
    with pytest.raises(OpcostError, match=rf"{path}: canonical_json .* name a database that"):
        query([path], Filter(dtypes=["float32"]))


def test_the_largest_come_first_and_what_is_not_known_last(path):
    times = query([path], sort="time", columns=["time"])["time_s"].to_pylist()
    assert times == [4e-3, 3e-3, 2e-3, 1e-3, None]
    least = query([path], sort="time_s", ascending=True, limit=2, columns=["time_s"])
    assert least["time_s"].to_pylist() == [1e-3, 2e-3]
    assert len(query([path], limit=10**20)) == 5


def test_the_columns_are_those_that_were_asked_for_in_their_order(path):
    table = query([path], columns=["flops", "time", "meter_missing"])
    assert table.column_names == ["flops", "time_s", "meter_missing"]
    assert isinstance(table, pa.Table)


def test_several_databases_are_one_answer_and_rows_say_where_they_are_from(path, tmp_path):
    merged = tmp_path / "merged.parquet"
    merge([path], merged)
    rows = query([path, merged], columns=["database", "conditions_id", "sources"]).to_pylist()
    assert [each["database"] for each in rows] == [str(path)] * 5 + [str(merged)] * 5
    assert all(each["sources"] is None for each in rows[:5])
    assert all(each["sources"] for each in rows[5:])


sizes = st.lists(st.integers(0, 300), min_size=1, max_size=5)


@given(sizes, st.data())
def test_a_shape_fits_itself_with_any_of_its_sizes_left_open(tmp_path_factory, shape, data):
    spec = TensorSpec(tuple(shape), "float32")
    operator_tuple = OperatorTuple("aten.relu.default", (("self", spec),))
    path = tmp_path_factory.mktemp("shape") / "database.parquet"
    operator_columns = {
        "tuple_id": operator_tuple.tuple_id,
        "operator": operator_tuple.operator,
        "canonical_json": operator_tuple.canonical_json,
    }
    records.write(path, schemas.DATABASE, [row("add", time_s=1e-3) | operator_columns])
    opened = ["*" if data.draw(st.booleans()) else str(size) for size in shape]
    assert len(query([path], Filter(shapes=["x".join(opened)]))) == 1
    assert len(query([path], Filter(shapes=["x".join([*opened, "*"])]))) == 0


def run(*arguments):
    return CliRunner().invoke(main, ["query", *map(str, arguments)])


def test_people_get_a_table_with_intervals(path):
    completed = run(path, "--sort", "time", "--limit", "3")
    assert completed.exit_code == 0, completed.output
    header, *lines = completed.stdout.splitlines()
    assert header.split() == ["tuple_id", "description", "target", "time", "flags"]
    assert [line.split()[0] for line in lines] == [
        TUPLES[name].tuple_id for name in ("nms", "cat", "conv")
    ]
    assert "2.00 ms ± 5.0%" in lines[2]


def test_a_row_that_is_too_noisy_names_what_its_runs_found(tmp_path):
    times = {"time_s": 9.8e-4, "time_ci_low_s": 8.9e-6, "time_ci_high_s": 0.11}
    noisy = row("conv", **times, run_time_s=[6.7e-4, 1.41e-3])
    records.write(tmp_path / "noisy.parquet", schemas.DATABASE, [noisy])
    answer = run(tmp_path / "noisy.parquet").stdout
    assert "too noisy to say (2 runs: 670 µs and 1.41 ms)" in answer
    assert "It narrows with runs on" in answer
    assert "980" not in answer
    [in_json] = run(tmp_path / "noisy.parquet", "--json", "--columns", "time").stdout.splitlines()
    assert json.loads(in_json) == {"time_s": 9.8e-4}


def test_reference_data_are_a_database_by_their_name(path):
    answer = run("-d", "h100", "--sort", "energy", "--limit", "1")
    assert answer.exit_code == 0
    assert "h100" in answer.stdout.splitlines()[1]
    assert "there is no database h1:" in run("-d", "h1").stderr


def test_power_and_energy_have_columns_where_they_were_measured(path, tmp_path):
    assert "power" not in run(path).output.splitlines()[0]
    power = {"power_w": 250.0, "power_ci_low_w": 245.0, "power_ci_high_w": 255.0}
    energy = {"energy_j": 0.5, "energy_ci_low_j": 0.49, "energy_ci_high_j": 0.51}
    measured = tmp_path / "measured.parquet"
    records.write(measured, schemas.DATABASE, [row("conv", time_s=2e-3, **power, **energy)])
    header, shown = run(measured).output.splitlines()[:2]
    assert header.split()[2:] == ["target", "time", "power", "energy"]
    assert "250 W ± 2.0%" in shown
    assert "500 mJ ± 2.0%" in shown


def test_a_table_tells_machines_apart_that_have_targets_of_one_name(path, tmp_path):
    assert "device_name" not in run(path).stdout.splitlines()[0]
    merged = tmp_path / "merged.parquet"
    machines = [
        row("conv", time_s=time_s, device_name=name, conditions_id=f"{time_s:016}")
        for time_s, name in ((1, "EPYC"), (2, "EPYC"), (3, "Xeon"))
    ]
    records.write(merged, schemas.MERGED, machines)
    header, *lines = run(merged).stdout.splitlines()
    assert header.split()[2:6] == ["target", "device_name", "conditions_id", "time"]
    assert [line.split()[-4] for line in lines] == ["Xeon", "EPYC", "EPYC"]
    assert "conditions_id" not in run(merged, "--limit", 1).stdout
    assert list(json.loads(run(merged, "--json").stdout.splitlines()[0])) == [*DEFAULT_COLUMNS]


def test_a_table_that_cannot_be_sorted_says_so(path):
    completed = run(path, "--sort", "energy")
    assert completed.exit_code == 0
    without_energy = "no row has energy_j, so rows are in the order of the database\n"
    assert without_energy in completed.stderr
    assert "no row has" not in run(path, "--sort", "time").stderr


def test_a_table_is_sorted_by_time_and_says_how_many_rows_there_are(path):
    completed = run(path, "--limit", "2")
    assert completed.stdout.splitlines()[1].startswith(TUPLES["nms"].tuple_id)
    assert re.search(r"2 of \d+ rows; --limit shows more", completed.stderr)
    assert "rows; --limit" not in run(path).stderr


@pytest.mark.parametrize(("name", "unit"), [("time", "s"), ("power", "w")])
def test_a_table_says_what_its_intervals_are_of(tmp_path, name, unit):
    path = tmp_path / "database.parquet"
    note = "±: half of the 95 % interval, from the row's own runs.\n"
    known = {f"{name}_{unit}": 1e-3} | ({"power_w": 1.0} if name == "energy" else {})
    limits = {f"{name}_ci_low_{unit}": 0.9e-3, f"{name}_ci_high_{unit}": 1.1e-3}
    records.write(path, schemas.DATABASE, [row("conv", time_s=1e-3) | known | limits])
    assert run(path).stderr == run(path, "--columns", name).stderr == note
    for arguments in (["--columns", "description,flops"], ["--json"], ["--csv"]):
        assert run(path, *arguments).stderr == ""
    records.write(path, schemas.DATABASE, [row("conv", time_s=1e-3) | known])
    assert run(path).stderr == "", "there is no interval"


def test_a_list_is_shown_by_its_first_values_as_people_read_them(tmp_path):
    path = tmp_path / "database.parquet"
    lists = {"conv": [1e-6, None, 2e-6], "cat": [1e-6] * 5}
    rows = [row(name, time_s=1e-3, run_host_time_s=each) for name, each in lists.items()]
    records.write(path, schemas.DATABASE, rows)
    output = run(path, "--columns", "description,run_host_time_s").output
    assert "1.000 µs - 2.000 µs" in output.splitlines()[1]
    assert "1.000 µs 1.000 µs 1.000 µs ... (5)" in output


def test_programs_get_lines_of_json_csv_or_parquet(path, tmp_path):
    options = ["--operator", "torchvision.nms", "--columns", "time,block_time_s,meter_missing"]
    expected = {
        "time_s": 4e-3,
        "block_time_s": [4e-3, 5e-3],
        "meter_missing": {"clock": "no sensor"},
    }
    assert json.loads(run(path, *options, "--json").stdout) == expected
    assert run(path, *options, "--csv").stdout.splitlines() == [
        "time_s,block_time_s,meter_missing",
        '0.004,"[0.004, 0.005]","{""clock"": ""no sensor""}"',
    ]
    assert run(path, *options, "--parquet", tmp_path / "rows.parquet").exit_code == 0
    [again] = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    assert again == expected | {"meter_missing": [("clock", "no sensor")]}


def test_without_a_row_of_a_target_those_under_other_conditions_are_named(tmp_path):
    path, former = tmp_path / "database.parquet", "local/cpu-1thread-0a0a0a0a"
    rows = [row("cat"), row("conv", target=former), row("conv", target="localhost/cpu-0")]
    records.write(path, schemas.DATABASE, [each | {"time_s": 1e-3} for each in rows])
    completed = run(path, "--target", "local", "--operator", "conv2d")
    assert completed.exit_code == 3
    assert f"no row matches\nunder other conditions, rows match: --target {former}\n" in (
        completed.stderr
    )
    completed = run(path, "--target", former, "--operator", "cat")
    assert completed.stderr == "no row matches\n"


def test_no_row_is_an_answer_to_look_at(path):
    completed = run(path, "--status", "crashed")
    assert (completed.exit_code, completed.stdout) == (3, "")
    assert "no row matches" in completed.stderr
    assert run(path, "--json", "--status", "crashed").stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        "query {path} --parquet {output}",
        "explain resnet18 -d {path} --parquet {output}",
        "diff {path} {path} --parquet {output}",
        "merge {path} -o {output}",
        "import {path} --source a -o {output}",
        "export {path} {output}",
    ],
)
@pytest.mark.parametrize("name", ["database.parquet", "other/../database.parquet", "link.csv"])
def test_no_command_overwrites_the_database_that_it_reads(path, words, name):
    before = path.read_bytes()
    (path.parent / "other").mkdir()
    path.with_name("link.csv").symlink_to(path)
    if words.startswith("export"):  # whose outputs end otherwise
        path, name = path.rename(path.with_name("database.csv")), name.replace("parquet", "csv")
        path.with_name("link.csv").unlink()
        path.with_name("link.csv").symlink_to(path)
    words = words.format(path=path, output=path.parent / name)
    completed = CliRunner().invoke(main, words.split())
    assert completed.exit_code == 1
    assert "is also an input, " in completed.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("argument", "advice"),
    [
        ("conv2d", "To select an operator, write --operator conv2d"),
        ("*norm*", "write --operator '*norm*'"),
        ("relu(1x8)", "write --tuple 'relu(1x8)'"),
        ("another.parquet", "run a study"),
    ],
)
def test_what_is_no_file_may_be_meant_as_an_operator(argument, advice):
    result = run(argument)
    assert result.exit_code == 1
    assert f"there is no database {argument}" in result.output
    assert advice in result.output


def completions(monkeypatch, words):
    monkeypatch.setenv("_OPCOST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    result = CliRunner().invoke(main, prog_name="opcost")
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_the_shell_completes_commands_operators_and_targets(path, monkeypatch):
    assert completions(monkeypatch, "opcost que") == ["query"]
    assert completions(monkeypatch, f"opcost query {path} --operator co") == ["conv2d"]
    assert completions(monkeypatch, f"opcost query {path} --target h") == ["h200"]
    assert completions(monkeypatch, "opcost query absent --target h") == []


def test_the_shell_completes_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/models").mkdir(parents=True)
    (tmp_path / "config/models/resnet_of_mine.yaml").touch()
    assert completions(monkeypatch, "opcost run resnet1") == ["resnet101", "resnet152", "resnet18"]
    assert completions(monkeypatch, "opcost run alexnet resnet_") == ["resnet_of_mine"]
    assert completions(monkeypatch, "opcost explain alexn") == ["alexnet"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_that_switches_completion_on_is_printed(shell):
    completed = CliRunner().invoke(main, ["completion", shell])
    assert completed.exit_code == 0
    assert f"_OPCOST_COMPLETE={shell}_complete" in completed.stdout
