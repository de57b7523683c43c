"""What a change of the study, of its surroundings or of its results makes Snakemake do again, and
what not: what is measured stays, and what is something else is measured beside it.
"""

import os
import shutil
import time
from functools import partial

import pyarrow.parquet as pq
import pytest
import yaml
from opcost.difference.databases import compare_databases

from tests.checkout import MEASUREMENTS, configure, edit, stamps

TABLES = ["compare", "database", "report"]


def again(done, *arguments):
    """The jobs of a run, after which there is nothing to do."""
    started = done.started(*arguments)
    assert done.started() == []
    return started


def measure(checkout, **settings):
    edit(
        checkout.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(settings),
    )


def test_nothing_is_done_twice_nor_for_another_text_cluster_or_duration(done):
    assert done.started() == []
    for name in ("tiny_cnn.yaml", "tiny.py"):
        with (done.root / "tests/study/models" / name).open("a") as file:
            file.write("# a remark\n")
    rules = done.root / "workflow/rules/benchmark.smk"
    rules.write_text(rules.read_text().replace("Identifying the device", "Finding the device"))
    cluster = {"gpu_model": "h100", "partition": "long", "constraint": "big", "exclusive": True}
    configure(done, targets={"local": {"device": "cpu", "cluster": cluster}})
    measure(done, time_relative_ci=0.4, max_time_s=1, min_batches=7, timeout_s=90)
    assert done.started() == []


def test_of_a_new_model_another_input_and_another_factory_only_new_tuples_are_measured(done):
    models = done.root / "tests/study/models"
    square = {"factory": "tiny:mlp", "arguments": {"width": 8}, "inputs": [{"shape": [4, 8]}]}
    (models / "square.yaml").write_text(yaml.safe_dump(square))
    configure(done, models=["tiny_mlp", "tiny_cnn", "square"])
    former = (models / "tiny_cnn.yaml").read_text()
    edit(models / "tiny_cnn.yaml", lambda model: model.update(inputs=[{"shape": [2, 3, 8, 8]}]))
    before = stamps(done)
    # linear 4x8 to 8 (once, though called twice) and relu 4x8; each of tiny_cnn's
    assert done.started() == sorted(
        ["extract", "benchmark_model"] * 2
        + ["benchmark_operator"] * 5
        + ["models", "collect", *TABLES]
    )
    assert before.items() <= stamps(done).items()
    (models / "tiny_cnn.yaml").write_text(former)
    assert again(done) == sorted(["collect", "models", *TABLES])
    source = models / "tiny.py"
    source.write_text(source.read_text().replace("nn.ReLU()", "nn.Sigmoid()"))
    before = stamps(done)
    # The file is that of all models. Their linear and conv2d tuples stay measured.
    assert done.started().count("extract") == 3
    assert len(stamps(done)) == len(before) + 3


def test_other_settings_are_measured_beside_the_former_ones_and_these_again_at_once(done):
    before, former_folder = stamps(done), done.folder
    measure(done, cache_state="cold")
    completed = done.run()
    assert completed.stderr.count("(Rule: benchmark_operator)") == 6
    [line] = [each for each in completed.stdout.splitlines() if "; kept: " in each]
    assert line.startswith("local: measuring under cpu-1thread-torch")
    assert "; kept: 8 measurements of cpu-1thread-torch" in line
    assert line.endswith(" (cache_state: warm -> cold)")
    assert len([*done.root.glob(MEASUREMENTS)]) == 12
    database = pq.read_table(done.root / "results/database.parquet").to_pandas()
    former = next(name for name in set(database["target"]) if name != "local")
    assert former.startswith("local/cpu-1thread-torch")
    assert set(database[database["target"] == "local"]["cache_state"]) == {"cold"}
    assert former in " ".join((done.root / "results/summary.txt").read_text().split())
    path = done.root / "results/database.parquet"
    [compared] = compare_databases(path, path, targets={former: "local"}, anyway=True).targets
    assert compared

    row = next((former_folder / "operators").glob("*.parquet"))
    present = done.folder / "operators" / row.name
    measured = present.read_bytes()
    shutil.copy(row, present)
    completed = done.run()
    assert completed.returncode != 0
    said = " ".join((completed.stdout + completed.stderr).split())
    assert f"{row.name} was measured under other conditions than" in said
    assert "(other settings): move it to the folder of its conditions, or delete" in said
    present.write_bytes(measured)

    measure(done, cache_state="warm")
    assert again(done) == TABLES
    assert before.items() <= stamps(done).items()


def test_another_pytorch_measures_beside_the_former_one_and_back_nothing(
    done, tmp_path, monkeypatch
):
    """Snakemake finds another one; the jobs are forked from a process that has the real one."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/version.py").write_text("__version__ = '9.9.9'\ncuda = None\n")
    configure(done, models=["tiny_mlp"])
    done.started()
    before = stamps(done)
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(tmp_path))
        assert again(done) == sorted(
            ["identify_target", "characterize_sensor", "collect", "extract", "models"]
            + ["benchmark_operator"] * 3
            + ["benchmark_model", *TABLES]
        )
        assert any(done.root.glob("results/local/cpu-1thread-torch9.9.9-*/device.json"))
    assert again(done) == sorted(["models", *TABLES])
    assert before.items() <= stamps(done).items()


def test_what_was_deleted_is_made_again_and_a_clock_that_was_ahead_hides_nothing(done):
    ahead = time.time() + 2 * 86400
    for path in (done.root / "results").rglob("*.*"):
        os.utime(path, (ahead, ahead))
    next(done.root.glob(MEASUREMENTS)).unlink()
    settings = done.folder / "settings.json"
    former = settings.read_text()
    settings.unlink()
    assert done.started() == ["benchmark_operator", *TABLES]
    assert settings.read_text() == former


def test_a_deleted_extraction_is_made_again_where_the_plan_within_a_budget_reads_it(done):
    configure(done, max_device_time_s=1000)
    [path] = done.root.glob("results/tuples/tiny_cnn-*.pkl")
    path.unlink()
    before = stamps(done)
    assert done.started() == sorted(["extract", "collect", "models", *TABLES])
    assert path.exists()
    assert stamps(done) == before


@pytest.mark.parametrize(
    ("arguments", "rules"),
    [
        (["--forcerun", "benchmark_model"], sorted(["benchmark_model"] * 2 + TABLES)),
        (["--touch"], []),
    ],
)
def test_options_of_snakemake_do_what_its_manual_says(done, arguments, rules):
    assert again(done, *arguments) == rules


def test_a_run_can_end_before_the_tables_or_leave_one_out(prepared):
    assert prepared.started("--until", "benchmark_operator") == ["benchmark_operator"] * 6
    started = prepared.started("--omit-from", "compare")
    assert started == ["benchmark_model"] * 2 + ["database"]


def test_operators_can_be_measured_before_the_models_end_to_end(prepared):
    measured = partial(prepared.started, "--cores", "1")
    assert measured("operators") == ["benchmark_operator"] * 6 + ["operators"]
    assert measured("end_to_end") == ["benchmark_model"] * 2 + ["end_to_end"]
    assert measured("operators", "end_to_end") == []


def test_without_snakemakes_records_and_in_a_copy_nothing_is_measured_again(done):
    shutil.rmtree(done.root / ".snakemake")
    assert done.started() == []
    done.copy_results()
    assert not {"extract", "benchmark_operator", "benchmark_model"} & {*done.started()}


def test_tables_show_what_other_studies_measured_also_of_a_study_of_nothing(done):
    configure(done, models=[])
    before = stamps(done)
    assert {*done.started()} <= {"collect", "models", *TABLES}
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert comparison["model"].to_pylist() == ["tiny_cnn", "tiny_mlp"]
    assert len(pq.read_table(done.root / "results/database.parquet")) == 6
    for folder in (done.root / "results/studies").glob("tiny_mlp*"):
        shutil.rmtree(folder)
    configure(done, models=["tiny_cnn"])
    done.started()
    comparison = pq.read_table(done.root / "results/comparison.parquet")
    assert comparison["model"].to_pylist() == ["tiny_cnn"]
    assert stamps(done) == before
