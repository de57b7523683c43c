"""What the report says follows from the study's files; without a browser."""

import base64
import gzip
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opcost.commands import main
from opcost.costs.breakdown import NOT_TOLD_APART
from opcost.databases.database import read_database
from opcost.databases.merging import merge
from opcost.errors import OpcostError
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.report import roofline
from opcost.report.agreement import agreement, all_caveats, all_waits
from opcost.report.cards import cards, side_by_side, without_energy
from opcost.report.colours import PALETTE, Colours, colours
from opcost.report.icicles import icicles
from opcost.report.operator_costs import stacks
from opcost.report.operator_table import operator_table
from opcost.report.page import packed, render, script_json
from opcost.report.quality import quality
from opcost.report.results import FILES, Results
from opcost.report.row_details import CHUNK, STEP, chunks, common
from opcost.report.scatter import MAX_MARKS, scatter
from opcost.rows import schemas
from opcost.rows.flags import ABOVE_ROOF
from opcost.rows.quantities import ENERGY, TIME

from tests.comparisons import database
from tests.synthetic_study import NO_SENSOR, TARGETS, make_study

MANY = [f"model_{number:02}" for number in range(20)]
COLOURS = Colours(["conv2d"])


def read(folder):
    return Results.read({name: folder / f"{name}.parquet" for name in FILES})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def results(folder):
    return read(folder)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Two thousand operators on one target."""
    folder = tmp_path_factory.mktemp("many")
    return read(make_study(folder, 2000, MANY, TARGETS[:1], batches=400, samples=20))


def stacked(results):
    shares = results.shares_on("large_gpu")
    return stacks(results.compared("large_gpu"), shares, TIME, named(results))


def named(results):
    return colours(results.comparison, results.shares)


def test_a_file_of_another_kind_is_refused(folder):
    with pytest.raises(OpcostError, match="shares"):
        Results.read(dict.fromkeys(FILES, folder / "database.parquet"))


def test_the_verdict_counts_the_models_that_can_be_compared(results):
    found = agreement(results, TIME)
    assert found.verdicts["large_gpu"].startswith("2 of 3 models can be compared.")
    rows = {(row["model"], row["target"]): row for row in found.figure.spec["datasets"]["models"]}
    assert ("first", "large_gpu") not in rows
    second = rows["second", "large_gpu"]
    expected = second["estimate_time_s"] / second["end_to_end_time_s"] - 1
    assert second["value"] == pytest.approx(expected)


def test_what_is_missing_is_named_once_with_its_reason_and_all_targets(results):
    caveats = all_caveats(results)
    [failed] = [each for each in caveats if "1 of 20 operator tuples failed" in each[1]]
    assert failed[0] == "large_gpu, small_gpu, processor"
    assert failed[1].startswith("No sum of time for first: ")


def test_a_target_without_energy_says_so_once(results):
    assert without_energy(results) == [("processor", NO_SENSOR)]
    assert not any(NO_SENSOR in caveat for _, caveat in all_caveats(results))
    assert (
        render(results).split('<script type="application/json" id="details">')[0].count(NO_SENSOR)
        == 1
    )


def test_a_card_has_every_segment_of_the_bar_and_one_line_at_batch_size_1(results):
    found = {(card.model, card.target): card for card in cards(results, named(results))}
    assert len(found) == len(results.comparison)
    for card in found.values():
        for cost in card.costs:
            assert sum(segment.width for segment in cost.segments) == pytest.approx(100)
            assert cost.sample is None
            assert cost.rate_value == pytest.approx(1 / cost.value)
    with_energy = found["second", "large_gpu"]
    assert [str(cost.quantity) for cost in with_energy.costs] == ["time", "energy"]
    assert with_energy.modules[0][0].startswith("stage")
    [time] = found["second", "processor"].costs
    assert time.trust.word == "good"


def test_what_is_not_measured_is_a_segment_and_the_reason_is_that_of_the_trust(results):
    [card] = [
        card
        for card in cards(results, named(results))
        if (card.model, card.target) == ("first", "processor")
    ]
    [time] = card.costs
    assert time.segments[-1].is_missing
    assert time.trust.word == "unverified"
    assert "1 of 20 operator tuples failed" in time.trust.reason


def at_batches(results, *sizes):
    """The study, with a resnet18 at these batch sizes in place of its first models."""
    definitions = [
        ModelDefinition(row["model"], (InputSpec((size, 3, 8, 8)),), model="resnet18").to_json()
        for row, size in zip(results.models, sizes, strict=False)
    ]
    models = [
        row | {"definition_json": definition}
        for row, definition in zip(results.models, definitions, strict=False)
    ]
    batches = {row["model"]: size for row, size in zip(models, sizes, strict=True)}
    comparison = [
        row | {"batch_size": batches[row["model"]]}
        for row in results.comparison
        if row["model"] in batches
    ]
    return replace(results, models=models, comparison=comparison)


def test_a_sample_of_a_batch_has_a_cost_of_its_own(results):
    [card] = [card for card in cards(at_batches(results, 8), COLOURS) if card.target == "processor"]
    [time] = card.costs
    assert time.rate_value == pytest.approx(8 / time.value)
    assert time.sample is not None


def test_of_a_time_that_is_too_noisy_no_speed_is_shown(results):
    noisy = [
        row | {"end_to_end_time_ci_high_s": 4 * row["end_to_end_time_s"]}
        for row in results.compared("processor")
    ]
    speeds = [card.flops for card in cards(replace(results, comparison=noisy), COLOURS)]
    assert speeds == [None] * len(noisy)
    column = results.database.schema.get_field_index("time_ci_high_s")
    wide = pa.compute.multiply(results.database["time_s"], 4.0)
    field = results.database.schema.field(column)
    rows = replace(results, database=results.database.set_column(column, field, wide)).operators
    for speed in ("flops_per_s", "bytes_per_s", "flops_per_byte"):
        assert rows[speed].isna().all()


def test_devices_stand_side_by_side_with_intervals(results):
    time, energy = side_by_side(results)
    rows = time.spec["datasets"]["models"]
    assert len(rows) == len(results.comparison)
    assert all(row["low"] < row["value"] < row["high"] for row in rows)
    assert {row["target"] for row in energy.spec["datasets"]["models"]} == {
        "large_gpu",
        "small_gpu",
    }
    alone = results.compared("processor")
    database = results.database.filter(pa.compute.equal(results.database["target"], "processor"))
    assert not list(side_by_side(replace(results, comparison=alone, database=database)))


def test_the_costliest_operators_have_a_colour_each_and_the_others_one(results):
    found = named(results)
    assert set(found.names) == {"conv2d", "linear", "batch_norm", "relu_", "add_"}
    assert {name: PALETTE.index(found.of(name)) for name in found.names} == {
        "conv2d": 0,
        "linear": 1,
        "batch_norm": 2,
        "relu_": 3,
        "add_": 4,
    }
    assert Colours(["a"]).of("b") == Colours(["a"]).of("other operators")


@given(st.lists(st.sampled_from(["linear", "conv2d", "relu", "relu_", *"abcdef"]), unique=True))
def test_colours_follow_names_and_differ(names):
    found = Colours(names)
    assert len({found.of(name) for name in names}) == len(names)
    assert "conv2d" not in names or found.of("conv2d") == PALETTE[0]


def test_more_than_six_models_are_a_table(results, many):
    assert 'class="card"' not in render(results)
    assert 'class="card"' in render(replace(results, comparison=results.comparison[:6]))
    assert 'class="plain cards-table"' in render(many)


def test_a_whole_model_with_a_flag_is_named_with_what_the_flag_means(results):
    said = "Flagged disturbed: whole model"
    assert not any(said in caveat for _, caveat in all_caveats(results))
    rows = [
        {**row, "end_to_end_flags": ["disturbed"] if row["model"] in ("first", "third") else []}
        for row in results.compared("processor")
    ]
    flagged = all_caveats(replace(results, comparison=rows))
    [(target, caveat)] = [each for each in flagged if said in each[1]]
    assert target == "processor"
    assert caveat.startswith("Flagged disturbed: whole model of first, third (interference slowed")


@pytest.mark.parametrize("quantity", [TIME, ENERGY], ids=str)
def test_a_stack_adds_up_to_the_estimate(quantity, results):
    estimate, reference = (quantity.of(each).value for each in ("estimate", "end_to_end"))
    known = [
        row | {"idle_time_s": 1e-3, estimate: 2 * row[estimate]}
        for row in results.compared("large_gpu")
        if row[estimate] is not None
    ]
    parts = stacks(known, results.shares_on("large_gpu"), quantity, named(results)).bars
    assert known
    for row in known:
        mine = [part for part in parts if part["model"] == row["model"]]
        stacked = sum(part["value"] for part in mine if part["part"] == "estimate")
        [whole] = [part["value"] for part in mine if part["part"] == "end-to-end"]
        assert stacked == pytest.approx(row[estimate])
        assert whole == row[reference]


def test_an_incomplete_stack_says_so_at_its_end(results):
    found = stacked(results)
    [note] = found.notes
    assert (note["model"], note["part"], note["note"]) == (
        "first",
        "estimate",
        "19 of 20 operators",
    )
    ends = [
        bar["end"] for bar in found.bars if (bar["model"], bar["part"]) == ("first", "estimate")
    ]
    assert note["end"] == max(ends)


def test_a_stack_has_the_interval_of_the_estimate_and_none_if_there_is_none(results):
    found = stacked(results).intervals
    limits = {(row["model"], row["part"]): (row["low"], row["high"]) for row in found}
    rows = {row["model"]: row for row in results.compared("large_gpu")}
    second = rows["second"]
    low, high = second["estimate_time_ci_low_s"], second["estimate_time_ci_high_s"]
    assert limits["second", "estimate"] == (low, high)
    assert ("first", "estimate") not in limits
    assert ("first", "end-to-end") in limits


def test_what_is_not_measured_fills_a_stack_up_to_the_measurement(results):
    bars = {
        (bar["part"], bar["what"]): bar for bar in stacked(results).bars if bar["model"] == "first"
    }
    assert bars["estimate", NOT_TOLD_APART]["end"] == bars["end-to-end", "end-to-end"]["end"]
    assert bars["estimate", "conv2d"]["total"] == bars["estimate", NOT_TOLD_APART]["end"]


def test_many_models_are_first_shown_in_shares(results, many):
    assert 'id="as-shares">' in render(results)
    assert 'id="as-shares" checked>' in render(many)


def test_modules_are_in_the_order_of_their_calls_and_add_up_to_the_estimate(results):
    found = {(each["model"], each["target"]): each for each in icicles(results)}
    assert len(found) == len(results.comparison)
    for row in results.compared("large_gpu"):
        each = found[row["model"], "large_gpu"]
        stages = [module[0].partition(".")[0] for module in each["modules"]]
        assert stages == sorted(stages)
        if row["estimate_time_s"] is not None:
            times_s = [module[3][0] for module in each["modules"]]
            assert sum(times_s) == pytest.approx(row["estimate_time_s"], rel=1e-3)
            assert sum(times_s) == pytest.approx(each["totals"][0], rel=1e-3)


def test_a_module_has_the_rows_of_its_operators(results):
    by_model = {(each["model"], each["target"]): each for each in icicles(results)}
    each = by_model["second", "processor"]
    rows = results.operators
    calls = 0
    for _, _, count, _, costliest, numbers in each["modules"]:
        assert set(rows["target"][numbers]) == {"processor"}
        assert costliest in set(rows["name"][numbers])
        calls += count
    assert {row for *_, numbers in each["modules"] for row in numbers} == set(range(140, 160))
    assert calls == 40


def test_the_models_of_gpus_say_how_long_they_wait_for_their_host(results):
    targets = [target for target, _ in all_waits(results)]
    assert set(targets) == {"large_gpu", "small_gpu"}
    assert all(" its host" in text for _, text in all_waits(results))


def test_ceilings_are_the_highest_that_an_operator_reached(results):
    frame = results.measured("large_gpu")
    roof = roofline.roofline(frame, "float32")
    ok = frame[frame["flops"] > 0]
    assert roof.flops_per_s == (ok["flops"] / ok["time_s"]).max()
    [ceiling] = roof.ceilings
    assert ceiling.source == roofline.ANYWHERE
    assert ceiling.bytes_per_s == (frame["bytes"] / frame["time_s"]).max()
    assert roof.without_flops == len(frame) - len(ok)


def test_a_rate_that_no_device_reaches_is_no_ceiling(results):
    [first, second] = results.measured("large_gpu").nlargest(2, "flops_per_s").itertuples()
    flags = results.database["flags"].to_pylist()
    flags[first.Index].append(ABOVE_ROOF)
    column = results.database.schema.get_field_index("flags")
    field = results.database.schema.field(column)
    flagged = results.database.set_column(column, field, pa.array(flags, field.type))
    measured = replace(results, database=flagged).measured("large_gpu")
    assert roofline.roofline(measured, "float32").flops_per_s == second.flops_per_s


def test_without_flops_there_is_no_roofline(results):
    frame = results.measured("large_gpu")
    assert roofline.dtypes(frame[frame["name"] == "relu_"]) == []


def test_each_type_of_numbers_has_a_ceiling_of_its_own_under_the_memory_s_one(results):
    slow = results.measured("large_gpu")
    half = slow.assign(dtype="float16", flops_per_s=slow["flops_per_s"] / 4, bytes_per_s=1.0)
    both = pd.concat([slow, half])
    assert roofline.dtypes(both) == ["float16", "float32"]
    lower, higher = (roofline.roofline(both, dtype) for dtype in roofline.dtypes(both))
    assert lower.flops_per_s == higher.flops_per_s / 4
    assert [each.bytes_per_s for each in lower.ceilings] == [
        each.bytes_per_s for each in higher.ceilings
    ]


def test_memory_and_the_cache_have_a_ceiling_each_from_operators_bound_by_them(results):
    frame = results.measured("processor").assign(last_level_cache_bytes=1000)
    from_weights = frame["name"] == "linear"
    frame["footprint_bytes"] = np.where(from_weights, 2000, 500)
    frame["weight_bytes"] = np.where(from_weights, frame["bytes"], 0)
    frame["bytes_per_s"] = np.where(from_weights, 10.0, 100.0)
    cache, memory = roofline.roofline(frame, "float32").ceilings
    assert (cache.source, cache.bytes_per_s) == (roofline.CACHE, 100.0)
    assert (memory.source, memory.bytes_per_s) == (roofline.MEMORY, 10.0)
    assert memory.ridge == pytest.approx(10 * cache.ridge)
    frame["bytes_per_s"] = np.where(from_weights, 200.0, 100.0)
    [only] = roofline.roofline(frame, "float32").ceilings
    assert only.source == roofline.MEMORY


def test_half_weights_from_memory_decide_and_less_do_not(results):
    frame = results.measured("processor").head(4).assign(last_level_cache_bytes=1000, bytes=100)
    frame["weight_bytes"] = [0, 0, 50, 49]
    frame["footprint_bytes"] = [1000, 2000, 2000, 2000]
    assert roofline.sources(frame).tolist() == ["cache", "memory", "memory", ""]


def test_few_operators_have_a_mark_each_and_many_share_one(results, many):
    def marks(results):
        frame = results.measured("large_gpu")
        return scatter(frame, "time_s", "power_w", roofline.launch_bound(frame), COLOURS), len(
            frame
        )

    few, count = marks(results)
    assert (few.grid, len(few.marks)) == (None, count)
    joined, count = marks(many)
    assert joined.grid is not None
    assert len(joined.marks) <= MAX_MARKS
    assert sum(mark["operators"] for mark in joined.marks) == count
    assert "cell of a grid" in joined.note


def test_the_table_has_every_row_of_the_database_and_null_where_nothing_was_measured(results):
    table = operator_table(results)
    assert len(table["rows"]) == len(results.database)
    titles = [column["title"] for column in table["columns"] if column["kind"] != "use"]
    by_title = [dict(zip(titles, row, strict=False)) for row in table["rows"]]
    first = results.database.slice(0, 1).to_pylist()[0]
    assert by_title[0]["time (µs)"] == pytest.approx(first["time_s"] * 1e6, rel=1e-3)
    failed = [row for row in by_title if row["status"] == "out_of_memory"]
    assert [row["time (µs)"] for row in failed] == [None] * 3


def test_a_row_of_the_table_names_the_models_that_call_it_and_its_share_of_each(results):
    table = operator_table(results)
    assert table["models"] == ["first", "second", "third"]
    assert [len(row[-1]) for row in table["rows"]] == [1] * len(results.database)
    total_s = {(row["model"], row["target"]): row["estimate_time_s"] for row in results.comparison}
    row = results.database.slice(25, 1).to_pylist()[0]
    [[model, calls, share]] = table["rows"][25][-1]
    assert (table["models"][model], calls) == ("second", 2)
    expected = 100 * 2 * row["time_s"] / total_s["second", row["target"]]
    assert share == pytest.approx(expected, rel=0.01)


def raw(chunk, kind, at, middle):
    return np.array(chunk[kind][at]["values"]) * STEP * middle + middle


def test_the_details_of_a_row_give_back_its_raw_values(results):
    rows = results.database.to_pylist()
    for index in (0, 61, len(rows) - 1):
        row, chunk = rows[index], chunks(results.database)[index // CHUNK]
        at = index % CHUNK
        assert raw(chunk, "blocks", at, row["time_s"]) == pytest.approx(
            row["block_time_s"], rel=STEP
        )
        counted = np.ones(len(row["block_time_s"]), bool)
        counted[chunk["blocks"][at]["disturbed"]] = False
        assert counted.tolist() == row["block_undisturbed"]
        if row["power_w"] is None:
            assert chunk["power"][at] is None
            continue
        assert raw(chunk, "power", at, row["power_w"]) == pytest.approx(
            row["power_sample_w"], rel=STEP
        )
        times_s = np.cumsum(chunk["power"][at]["gaps_ms"]) / 1e3
        assert times_s == pytest.approx(row["power_sample_time_s"], abs=5e-4)


def test_a_row_that_failed_has_no_raw_values_and_keeps_its_error(results):
    index = results.database["status"].to_pylist().index("out_of_memory")
    chunk = chunks(results.database)[index // CHUNK]
    assert chunk["blocks"][index % CHUNK] is None
    assert chunk["columns"]["error"][index % CHUNK] == "synthetic: tried to allocate 80 GiB"


def test_of_a_large_database_raw_values_are_thinned_and_their_count_is_kept(many, monkeypatch):
    monkeypatch.setattr("opcost.report.row_details._MAX_VALUES", 100 * len(many.database))
    blocks = chunks(many.database)[0]["blocks"][0]
    assert blocks["count"] == 400
    assert len(blocks["values"]) == 100


def test_columns_that_never_vary_are_given_once_for_each_target(results):
    found = common(results.database)
    assert found["large_gpu"]["device_name"] == "synthetic large_gpu"
    varying = chunks(results.database)[0]["columns"]
    assert not set(found["large_gpu"]) & set(varying)
    assert {"time_s", "canonical_json", "temperature_end_c"} <= set(varying)


def test_failures_are_counted(results):
    failures = quality(results).failures
    assert [(row["target"], row["status"], row["operators"]) for row in failures] == [
        (target.name, "out_of_memory", "1") for target in TARGETS
    ]


def test_the_page_names_no_address_to_fetch_from(results):
    page = render(results)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "@import" not in page
    assert page.count('<script type="application/octet-stream" id="vega">') == 1


JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(JSON))
def test_data_survive_packing_and_cannot_end_a_script(data):
    assert json.loads(gzip.decompress(base64.b64decode(packed(data)))) == data
    assert "<" not in script_json(data)
    assert json.loads(script_json(data)) == data


def test_the_smallest_study_makes_a_page(tmp_path):
    """One operator, one model, nothing but a time."""
    results = read(make_study(tmp_path, operators=1, models=("one",), targets=TARGETS[2:]))
    assert "1 model," in render(results)


def test_a_database_whose_rows_all_failed_makes_a_page(results):
    failed = results.database.filter(pa.compute.not_equal(results.database["status"], "ok"))
    page = render(Results(failed, [], [], [], results.models))
    assert "tried to allocate 80 GiB" in page


def test_a_model_of_which_nothing_was_measured_has_a_card_with_the_reason(results):
    row = dict.fromkeys(schemas.MODEL_COSTS.names) | {
        **{name: results.comparison[0][name] for name in ("model", "target", "tuples")},
        **{"measured_tuples": 0, "time_reason": "both failed", "end_to_end_flags": []},
        **{"flag_counts": [], "view_calls": 0},
    }
    page = render(replace(results, comparison=[row], modules=[], shares=[]))
    assert "unverified (both failed)" in page
    assert "a sample</small>" not in page


def test_a_study_without_any_operator_measured_makes_a_page(results):
    """As with a budget that whole models alone use up."""
    comparison = [{**row, "measured_tuples": 0} for row in results.comparison]
    nothing = results.database.slice(0, 0)
    page = render(Results(nothing, comparison, results.shares, results.modules, results.models))
    assert results.comparison[0]["model"] in page


def test_launch_modes_are_a_table_and_without_them_there_is_none(results):
    assert "Launch modes" not in render(results)
    empty = dict.fromkeys(schemas.LAUNCHES.names)
    names = {"model": "first", "target": "gpu"}
    eager = empty | names | {"launch_mode": "eager", "time_s": 2e-3}
    graph = empty | names | {"launch_mode": "graph", "reason": "unsupported: <no graphs>"}
    page = render(replace(results, launches=[eager, graph]))
    assert "<td>graph</td>" in page
    assert "unsupported: &lt;no graphs&gt;" in page


def test_requests_are_a_table_and_without_them_there_is_none(results):
    assert "<h3>Requests</h3>" not in render(results)
    row = dict.fromkeys(schemas.REQUESTS.names) | {
        **{"model": "chat", "target": "local", "batch_size": 1, "prompt_tokens": 64},
        **{"new_tokens": 128, "interpolation": "of its 127 steps, 2 were measured"},
        **{"end_to_end_time_s": 0.2},
        **{"end_to_end_token_time_s": 2e-3, "energy_reason": "no <sensor>"},
    }
    page = render(replace(results, requests=[row]))
    assert "<td>64 + 128</td>" in page
    assert "chat: of its 127 steps, 2 were measured." in page
    assert "No energy of chat: no &lt;sensor&gt;." in page


def test_a_study_of_operators_alone_has_no_sections_on_models(results):
    alone = Results(results.database, [], [], [], [])
    page = render(alone)
    assert "<h1>What these operators cost</h1>" in page
    assert "<h1>What these models cost, and where it goes</h1>" in render(results)
    for section in ("agreement", "costs"):
        assert f'id="{section}"' not in page
        assert f'id="{section}"' in render(results)
    assert 'id="limits"' in page


def test_a_page_of_a_database_alone_says_what_it_leaves_out(tmp_path):
    page = tmp_path / "h100.html"
    result = CliRunner().invoke(main, ["report", "h100", "--output", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert "This page is of the database <code>h100_torch" in text
    assert "left out, because they need the other files of a study" in text
    assert "NVIDIA H100 80GB HBM3" in text
    for section in ("cost", "costs", "agreement", "sweeps"):
        assert f'<section id="{section}"' not in text
    for section in ("limits", "operators", "quality"):
        assert f'<section id="{section}"' in text


def test_a_page_of_many_rows_has_of_each_target_those_that_take_longest(
    tmp_path, tiny_tuples, monkeypatch
):
    monkeypatch.setattr("opcost.report.results._MOST_ROWS", 4)
    path = database(tmp_path / "a.parquet", tiny_tuples)
    other = database(tmp_path / "b.parquet", tiny_tuples, "other", device_uuid_hash="gpu")
    merge([path, other], tmp_path / "merged")
    rows = read_database(tmp_path / "merged", ["target", "time_s"]).to_pandas()
    results = Results.of_database(tmp_path / "merged")
    shown = results.database.select(["target", "time_s"]).to_pandas()
    for target, each in rows.groupby("target"):
        longest = each["time_s"].nlargest(2).tolist()
        assert sorted(shown[shown.target == target]["time_s"]) == sorted(longest)
    assert results.left_out == len(rows) - 4
    assert f"{results.left_out:,} further rows are in the database" in render(results)


def test_a_page_of_a_study_names_no_other_source(results):
    assert "This page is of the database" not in render(results)


def test_targets_of_a_merged_database_are_apart_by_their_conditions(tmp_path, tiny_tuples):
    merged = tmp_path / "merged.parquet"
    known = {"device_uuid_hash": "gpu"}
    of = [
        database(tmp_path / f"{driver}.parquet", tiny_tuples, **known, driver_version=driver)
        for driver in ("580", "590")
    ]
    other = database(tmp_path / "other.parquet", tiny_tuples, "other", **known)
    merge([*of, other], merged)
    results = Results.of_database(merged)
    ids = set(
        read_database(merged, ["conditions_id", "target"])
        .to_pandas()
        .query("target == 'local'")
        .conditions_id
    )
    assert sorted(results.targets) == sorted(["other", *(f"local ({each})" for each in ids)])
    assert len(ids) == 2
    columns = [column["value"] for column in operator_table(results)["columns"]]
    assert "target" in columns
    assert not {"share", "calls", "model"} & {*columns}
    assert all(target in render(results) for target in results.targets)


def test_an_output_without_a_database_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["report", "--output", "page.html"])
    assert result.exit_code == 2
    assert "--output needs a DATABASE" in result.output
