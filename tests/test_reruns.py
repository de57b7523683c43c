"""What a change of the study, of its surroundings or of its results makes Snakemake do again, and
what not: what is measured stays, and what is something else is measured beside it.
"""

import os
import shutil
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
import yaml
from opcost.difference.databases import compare_databases

from tests.checkout import MEASUREMENTS, configure, edit, stamps

TABLES = ["compare", "database", "report"]
ANEW = sorted(
    ["identify_target", "characterize_sensor", "collect"]
    + ["benchmark_operator"] * 6
    + ["benchmark_model"] * 2
    + TABLES
)
OF_A_NEW_MODEL = ["extract", "models", "collect", "benchmark_model", *TABLES]


def again(done, *arguments):
    """The jobs of a run, after which there is nothing to do."""
    started = done.started(*arguments)
    assert done.started() == []
    return started


def measure_otherwise(done):
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(warm_up_s=0.02),
    )


def test_nothing_is_done_twice_and_after_a_comment_or_another_cluster_nothing_at_all(done):
    assert done.started() == []
    for name in ("tiny_cnn.yaml", "tiny.py"):
        with (done.root / "tests/study/models" / name).open("a") as file:
            file.write("# a remark\n")
    cluster = {"gpu_model": "h100", "partition": "long", "constraint": "big", "exclusive": True}
    configure(done, targets={"local": {"device": "cpu", "cluster": cluster}})
    assert done.started() == []


def test_a_new_model_measures_only_its_new_tuples(done):
    model = {"factory": "tiny:mlp", "arguments": {"width": 8}, "inputs": [{"shape": [4, 8]}]}
    (done.root / "tests/study/models/square.yaml").write_text(yaml.safe_dump(model))
    configure(done, models=["tiny_mlp", "tiny_cnn", "square"])
    before = stamps(done)
    # linear 4x8 to 8 (once, though called twice) and relu 4x8
    assert again(done) == sorted([*OF_A_NEW_MODEL, *["benchmark_operator"] * 2])
    assert before.items() <= stamps(done).items()


def test_a_model_with_another_input_is_extracted_and_measured_beside_the_former_one(done):
    path = done.root / "tests/study/models/tiny_cnn.yaml"
    former = path.read_text()
    edit(path, lambda model: model.update(inputs=[{"shape": [2, 3, 8, 8]}]))
    before = stamps(done)
    assert done.started() == sorted([*OF_A_NEW_MODEL, *["benchmark_operator"] * 3])
    assert before.items() <= stamps(done).items()
    path.write_text(former)
    assert done.started() == sorted(["models", *TABLES])


def test_a_changed_factory_extracts_its_models(done):
    source = done.root / "tests/study/models/tiny.py"
    source.write_text(source.read_text().replace("nn.ReLU()", "nn.Sigmoid()"))
    # Both models change: the file is theirs. Their linear and conv2d tuples stay measured.
    assert done.started().count("extract") == 2
    assert len(stamps(done)) == 6 + 2


def test_other_settings_are_measured_beside_the_former_ones_and_these_again_at_once(done):
    before = stamps(done)
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(cache_state="cold"),
    )
    completed = done.run("--dry-run")
    assert len(stamps(done)) == len(before), completed.stderr
    assert again(done) == ANEW
    assert len([*done.root.glob(MEASUREMENTS)]) == 12
    database = pq.read_table(done.root / "results/database.parquet").to_pandas()
    former = next(name for name in set(database["target"]) if name != "local")
    assert former.startswith("local/cpu-1thread-torch")
    assert set(database[database["target"] == "local"]["cache_state"]) == {"cold"}
    assert former in " ".join((done.root / "results/summary.txt").read_text().split())
    path = done.root / "results/database.parquet"
    [compared] = compare_databases(path, path, targets={former: "local"}, anyway=True).targets
    assert compared
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(cache_state="warm"),
    )
    assert again(done) == TABLES
    assert before.items() <= stamps(done).items()


def test_another_pytorch_measures_beside_the_former_one_and_back_nothing(
    done, tmp_path, monkeypatch
):
    """Snakemake finds another one; the jobs are forked from a process that has the real one."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/version.py").write_text("__version__ = '9.9.9'\ncuda = None\n")
    before = stamps(done)
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(tmp_path))
        assert again(done) == sorted([*ANEW, "extract", "extract", "models"])
        assert any(done.root.glob("results/local/cpu-1thread-torch9.9.9-*/device.json"))
    assert again(done) == sorted(["models", *TABLES])
    assert before.items() <= stamps(done).items()


def test_a_message_names_what_is_kept_and_what_differs(done):
    measure_otherwise(done)
    completed = done.run()
    [line] = [each for each in completed.stdout.splitlines() if "; kept: " in each]
    assert line.startswith("local: measuring under cpu-1thread-torch")
    assert "; kept: 8 measurements of cpu-1thread-torch" in line
    assert line.endswith(" (warm_up_s: 0.01 -> 0.02)")


def test_other_durations_of_a_measurement_measure_nothing_again(done):
    longer = {"time_relative_ci": 0.4, "max_time_s": 1, "min_batches": 7, "timeout_s": 90}
    edit(done.root / "tests/study/config.yaml", lambda config: config["measurement"].update(longer))
    before = stamps(done)
    assert done.started() == []
    assert stamps(done) == before
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert None not in comparison["estimate_time_s"].to_pylist()


def test_a_deleted_row_is_measured_again(done):
    next(done.root.glob(MEASUREMENTS)).unlink()
    assert done.started() == ["benchmark_operator", *TABLES]


@pytest.mark.parametrize("budget_s", [None, 1000])
def test_a_deleted_extraction_is_made_again(done, budget_s):
    """Also where the plan within a budget reads it."""
    configure(done, max_device_time_s=budget_s)
    [path] = done.root.glob("results/tuples/tiny_cnn-*.pkl")
    path.unlink()
    before = stamps(done)
    assert again(done) == sorted(["extract", "collect", "models", *TABLES])
    assert path.exists()
    assert stamps(done) == before


@pytest.mark.parametrize(
    ("arguments", "rules"),
    [
        (["--forcerun", "benchmark_operator"], ["benchmark_operator"] * 6 + TABLES),
        (["--forcerun", "benchmark_model"], ["benchmark_model"] * 2 + TABLES),
        (["--touch"], []),
        (["--until", "database", "--forcerun", "benchmark_operator"], None),
    ],
)
def test_options_of_snakemake_do_what_its_manual_says(done, arguments, rules):
    started = done.started(*arguments)
    if rules is None:
        assert started == ["benchmark_operator"] * 6 + ["database"]
    elif rules:
        assert started == sorted(rules)
    assert done.started() == [] or rules is None


def test_a_run_can_end_before_the_tables_or_leave_one_out(prepared):
    assert prepared.started("--until", "benchmark_operator") == ["benchmark_operator"] * 6
    started = prepared.started("--omit-from", "compare")
    assert started == ["benchmark_model"] * 2 + ["database"]


def test_without_snakemakes_records_and_in_a_copy_nothing_is_measured_again(done):
    shutil.rmtree(done.root / ".snakemake")
    assert done.started() == []
    shutil.copytree(done.root / "results", done.root / "copied")
    shutil.rmtree(done.root / "results")
    (done.root / "copied").rename(done.root / "results")
    assert not {"extract", "benchmark_operator", "benchmark_model"} & {*done.started()}


def test_a_clock_that_was_ahead_hides_nothing(done):
    ahead = time.time() + 2 * 86400
    for path in (done.root / "results").rglob("*.*"):
        os.utime(path, (ahead, ahead))
    next(done.root.glob(MEASUREMENTS)).unlink()
    assert done.started() == ["benchmark_operator", *TABLES]


def test_tables_show_what_other_studies_measured(done):
    configure(done, models=["tiny_cnn"])
    assert {*done.started()} <= {"collect", "models", *TABLES}
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert comparison["model"].to_pylist() == ["tiny_cnn", "tiny_mlp"]
    assert len(pq.read_table(done.root / "results/database.parquet")) == 6
    for folder in (done.root / "results/studies").glob("tiny_mlp*"):
        shutil.rmtree(folder)
    done.started()
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert comparison["model"].to_pylist() == ["tiny_cnn"]


def test_a_study_of_nothing_makes_the_tables_of_what_is_there(done):
    configure(done, models=[])
    before = stamps(done)
    done.started()
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert sorted(comparison["model"].to_pylist()) == ["tiny_cnn", "tiny_mlp"]
    assert stamps(done) == before


def test_the_text_of_a_message_and_other_code_measure_nothing_again(done):
    rules = done.root / "workflow/rules/benchmark.smk"
    rules.write_text(rules.read_text().replace("Identifying the device", "Finding the device"))
    assert done.started() == []


def test_other_rounds_and_copied_files_measure_nothing_in_finished_rounds(done):
    configure(done, rounds=2, precision={"models": 0.0001})
    assert "plan_round" in done.started()
    before = every_row(done)
    copied = done.root / "results_copied"
    shutil.copytree(done.root / "results", copied)
    shutil.rmtree(done.root / "results")
    copied.rename(done.root / "results")
    assert not {"benchmark_operator", "benchmark_model"} & {*done.started()}
    assert every_row(done) == before


def every_row(checkout):
    return {
        str(path.relative_to(checkout.root)): path.read_bytes()
        for kind in ("operators", "models")
        for path in checkout.root.glob(f"results/local/*/{kind}*/*.parquet")
    }


def test_a_row_copied_from_other_conditions_is_refused_by_name(done):
    before = done.folder
    configure(done, targets={"local": {"device": "cpu", "tf32": True}})
    done.started()
    after = next(each for each in done.root.glob("results/local/*/") if each != before)
    path = next((before / "operators").glob("*.parquet"))
    shutil.copy(path, after / "operators" / path.name)
    completed = done.run()
    assert completed.returncode != 0
    said = " ".join((completed.stdout + completed.stderr).split())
    assert f"{path.name} was measured under other conditions than" in said
    assert "(other settings): move it to the folder of its conditions, or delete" in said


def test_a_deleted_file_of_settings_is_made_again_before_rows_are_read(done):
    path = done.folder / "settings.json"
    settings = path.read_text()
    path.unlink()
    (done.root / "results/database.parquet").unlink()
    assert again(done) == TABLES
    assert path.read_text() == settings


def test_results_of_the_former_layout_are_moved_by_the_command_that_a_run_names(done):
    results, folder = done.root / "results", done.root / "results/local/operators"
    done.folder.rename(results / "kept")
    (results / "local").rmdir()
    (results / "kept").rename(results / "local")
    for path in (*results.glob("tuples/*.pkl"), *results.glob("local/models/*.parquet")):
        path.rename(path.with_stem(path.stem.rpartition("-")[0]))
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        version = {b"opcost.schema_version": b"14"}
        pq.write_table(table.replace_schema_metadata(table.schema.metadata | version), path)
    shutil.rmtree(results / "studies")
    completed = done.run()
    assert completed.returncode != 0
    assert "python -m opcost.move_results" in completed.stdout + completed.stderr
    command = [sys.executable, "-m", "opcost.move_results"]
    moved = subprocess.run(command, cwd=done.root, capture_output=True, text=True)
    assert moved.stdout.startswith("8 measurements moved")
    again = subprocess.run(command, cwd=done.root, capture_output=True, text=True)
    assert again.stdout.startswith("Nothing to move: ")
    assert done.started() == sorted(["collect", *TABLES])
