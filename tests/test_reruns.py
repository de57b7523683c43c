"""What a change of the study, or of its results, makes Snakemake do again, and what not."""

import json
import os
import shutil
import subprocess
import time

import pyarrow.parquet as pq
import yaml

from tests.checkout import MEASUREMENTS, configure, edit, stamps


def test_nothing_is_done_twice(done):
    assert done.started() == []


def test_a_comment_in_a_model_config_does_nothing(done):
    with (done.root / "tests/study/models/tiny_cnn.yaml").open("a") as file:
        file.write("# a remark\n")
    with (done.root / "tests/study/models/tiny.py").open("a") as file:
        file.write("# a remark\n")
    assert done.started() == []


def test_moved_model_configs_do_nothing(done):
    (done.root / "tests/study/models").rename(done.root / "elsewhere")
    configure(done, model_directory="elsewhere")
    assert done.started() == []


def test_a_new_model_measures_only_its_new_tuples(done):
    model = {"factory": "tiny:mlp", "arguments": {"width": 8}, "inputs": [{"shape": [4, 8]}]}
    (done.root / "tests/study/models/square.yaml").write_text(yaml.safe_dump(model))
    configure(done, models=["tiny_mlp", "tiny_cnn", "square"])
    before = stamps(done)
    assert done.started() == sorted(
        ["extract", "models", "collect", "benchmark_model", "database", "compare", "report"]
        # linear 4x8 to 8 (once, though called twice) and relu 4x8
        + ["benchmark_operator"] * 2
    )
    assert before.items() <= stamps(done).items()


def test_a_removed_model_measures_nothing(done):
    configure(done, models=["tiny_cnn"])
    assert done.started() == ["collect", "compare", "database", "models", "report"]
    assert len(pq.read_table(done.root / "results/database.parquet")) == 6
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert comparison["model"].to_pylist() == ["tiny_cnn"]
    assert "of 3 operators" in (done.root / "results/report.html").read_text()


def test_a_changed_model_config_extracts_that_model_alone(done):
    change = {"inputs": [{"shape": [2, 3, 8, 8]}]}
    edit(done.root / "tests/study/models/tiny_cnn.yaml", lambda model: model.update(change))
    before = stamps(done)
    assert done.started() == sorted(
        ["extract", "models", "collect", "benchmark_model", "database", "compare", "report"]
        + ["benchmark_operator"] * 3
    )
    assert before.items() <= stamps(done).items()


def test_a_changed_factory_extracts_its_models(done):
    source = done.root / "tests/study/models/tiny.py"
    source.write_text(source.read_text().replace("nn.ReLU()", "nn.Sigmoid()"))
    # Both models change: the file is theirs. Their linear and conv2d tuples stay measured.
    assert done.started().count("extract") == 2
    assert len(stamps(done)) == 6 + 2


def test_a_changed_measurement_setting_measures_again(done):
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(warm_up_s=0.02),
    )
    before = stamps(done)
    started = done.started()
    assert started.count("extract") == 0
    assert started.count("identify_target") == 0
    assert started.count("benchmark_operator") == 6
    assert started.count("benchmark_model") == 2
    assert not before.items() & stamps(done).items()


def test_rows_that_a_study_of_other_settings_left_are_measured_again_when_they_are_asked_for(done):
    """Also if a run in between, at the present settings, did not ask for them."""
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(warm_up_s=0.02),
    )
    configure(done, models=["tiny_mlp"])
    first = done.started()
    configure(done, models=["tiny_mlp", "tiny_cnn"])
    second = done.started()
    assert first.count("benchmark_operator") + second.count("benchmark_operator") == 6
    assert second.count("benchmark_operator") > 0
    assert (first.count("benchmark_model"), second.count("benchmark_model")) == (1, 1)


def test_other_durations_of_a_measurement_measure_nothing_again(done):
    longer = {"time_relative_ci": 0.4, "max_time_s": 1, "min_batches": 7, "timeout_s": 90}
    edit(done.root / "tests/study/config.yaml", lambda config: config["measurement"].update(longer))
    before = stamps(done)
    assert done.started() == ["compare", "database", "report"]
    assert stamps(done) == before
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert None not in comparison["estimate_time_s"].to_pylist()


def test_the_text_of_a_measuring_command_measures_nothing_again(done):
    rules = done.root / "workflow/rules/benchmark.smk"
    text = rules.read_text()
    rules.write_text(text.replace("--output {output:q}", "  --output {output:q}"))
    assert rules.read_text() != text
    assert done.started() == []


def test_other_code_and_copied_files_measure_nothing_in_finished_rounds(done):
    configure(done, rounds=2, precision={"models": 0.0001})
    assert "plan_round" in done.started()
    before = every_row(done)
    with (done.root / "scripts/opcost/text.py").open("a") as file:
        file.write("# a remark\n")
    made = set(done.started())
    assert made
    assert not made & {"plan_round", "benchmark_operator", "benchmark_model"}
    copied = done.root / "results_copied"
    shutil.copytree(done.root / "results", copied)
    shutil.rmtree(done.root / "results")
    copied.rename(done.root / "results")
    made = set(done.started())
    assert "plan_round" in made
    assert not made & {"benchmark_operator", "benchmark_model"}
    assert every_row(done) == before


def every_row(checkout):
    return {
        str(path.relative_to(checkout.root)): path.read_bytes()
        for kind in ("operators", "models")
        for path in checkout.root.glob(f"results/local/{kind}*/*.parquet")
    }


def test_restored_rows_are_kept_if_their_settings_are_those_of_the_study(done):
    config = done.root / "tests/study/config.yaml"
    results, earlier = done.root / "results", done.root / "earlier"
    shutil.copy2(config, done.root / "config_before")
    subprocess.run(["cp", "-a", results, earlier], check=True)
    edit(config, lambda config: config["measurement"].update(warm_up_s=0.02))
    assert done.started().count("benchmark_operator") == 6
    shutil.rmtree(results)
    earlier.rename(results)
    shutil.copy2(done.root / "config_before", config)
    before = stamps(done)
    assert not {"benchmark_operator", "benchmark_model", "extract"} & set(done.started())
    assert stamps(done) == before


def test_rows_of_other_settings_that_a_budget_left_are_measured_without_it(done):
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(warm_up_s=0.02),
    )
    configure(done, max_device_time_s=0.001)
    assert done.started().count("benchmark_operator") < 6
    configure(done, max_device_time_s=None)
    done.started()
    conditions = pq.read_table(done.root / "results/database.parquet")["conditions_json"]
    assert all('"warm_up_s": 0.02' in each for each in conditions.to_pylist())


def test_settings_of_a_target_identify_its_device_again(done):
    device = done.root / "results/local/device.json"
    shutil.rmtree(done.root / ".snakemake")
    configure(done, targets={"local": {"device": "cpu", "tf32": True}})
    assert "identify_target" in done.started()
    assert json.loads(json.loads(device.read_text())["settings_json"])["tf32"] is True
    assert done.started() == []


def test_other_settings_are_announced_and_a_dry_run_takes_nothing_from_a_live_run(done):
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(warm_up_s=0.02),
    )
    notes = {path: path.read_bytes() for path in (done.root / "results/.made").iterdir()}
    dry = done.run("--dry-run")
    assert "benchmark_operator" in dry.stdout
    why = "of other settings, or of another protocol version: to be replaced."
    assert f"6 measured operators {why}" in dry.stderr
    assert "first run: opcost set-aside local" in dry.stderr
    assert f"2 measured models {why}" in dry.stderr
    assert {path: path.read_bytes() for path in (done.root / "results/.made").iterdir()} == notes
    planned = done.run("--", "plan").stdout
    assert "8 rows of other settings, or of another protocol version, would be replaced" in planned


def test_where_a_cluster_would_send_jobs_measures_nothing_again(done):
    cluster = {"gpu_model": "h100", "partition": "long", "constraint": "big", "exclusive": True}
    configure(done, targets={"local": {"device": "cpu", "cluster": cluster}})
    assert done.started() == []


def test_a_deleted_measurement_is_measured_again(done):
    next(done.root.glob(MEASUREMENTS)).unlink()
    assert done.started() == ["benchmark_operator", "compare", "database", "report"]


def tables_of(done):
    """Times of all rows by tuple: those of their files, and those of the database."""
    paths = done.root.glob(MEASUREMENTS)
    files = {path.stem: pq.read_table(path)["time_s"][0].as_py() for path in paths}
    database = pq.read_table(done.root / "results/database.parquet").to_pydict()
    return files, dict(zip(database["tuple_id"], database["time_s"], strict=True))


def test_a_clock_that_was_ahead_hides_nothing(done):
    ahead = time.time() + 2 * 86400
    for path in (done.root / "results").rglob("*.*"):
        os.utime(path, (ahead, ahead))
    next(done.root.glob(MEASUREMENTS)).unlink()
    assert "benchmark_operator" in done.started()
    files, database = tables_of(done)
    assert files == database
    assert done.started() == []


def test_a_restored_database_is_made_again(done):
    database = done.root / "results/database.parquet"
    shutil.copy2(database, done.root / "earlier")
    path = next(done.root.glob(MEASUREMENTS))
    path.unlink()
    done.started()
    shutil.copy(done.root / "earlier", database)
    assert done.started() == ["compare", "database", "report"]
    files, found = tables_of(done)
    assert files == found


def test_after_a_failed_aggregation_the_next_one_has_all_that_is_new(done):
    new, torn = sorted(done.root.glob(MEASUREMENTS))[:2]
    whole = torn.read_bytes()
    torn.write_bytes(whole[:100])
    new.unlink()
    assert done.run().returncode != 0
    torn.write_bytes(whole)
    assert done.started() == ["compare", "database", "report"]
    files, database = tables_of(done)
    assert files == database


def test_without_snakemakes_records_rows_of_other_settings_are_measured_again(done):
    shutil.rmtree(done.root / ".snakemake")
    assert done.started() == []
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(warm_up_s=0.02),
    )
    edit(
        done.root / "tests/study/models/tiny_cnn.yaml",
        lambda model: model.update(inputs=[{"shape": [2, 3, 8, 8]}]),
    )
    shutil.rmtree(done.root / ".snakemake")
    started = done.started()
    assert started.count("extract") == 1
    assert started.count("benchmark_model") == 2
    assert started.count("benchmark_operator") == 6
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert None not in comparison["estimate_time_s"].to_pylist()
    assert done.started() == []
