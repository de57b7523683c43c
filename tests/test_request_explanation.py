"""`opcost explain` of a request to a language model, from a database."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost.commands import INCOMPLETE, main
from opcost.costs.request_explanation import explain_request
from opcost.costs.units import Factors
from opcost.errors import OpcostError
from opcost.models.configs import load_models
from opcost.tuples.extraction import extract_model_tuples

from tests.comparisons import database
from tests.documents import ROOT

CONFIG = ROOT / "config/models/llama_tiny_chat.yaml"


@pytest.fixture(scope="module")
def steps():
    models = load_models(CONFIG.stem, CONFIG.parent).models
    return [extract_model_tuples(each) for each in models.values()]


@pytest.fixture
def explained(steps, tmp_path):
    """What `opcost explain` answers, from a database without some operators."""

    def explained(*options, name=CONFIG, without=(), **changes):
        path = database(tmp_path / "d.parquet", steps, without=without, **changes)
        return CliRunner().invoke(main, ["explain", str(name), "-d", str(path), *map(str, options)])

    return explained


def test_a_request_is_explained_by_operator_and_module(explained):
    found = explained("--top", 10)
    assert found.exit_code == 0, found.output
    text = " ".join(found.output.split())
    assert "llama_tiny_chat: 1 sequence, each of 64 tokens that 128 new ones follow" in text
    assert "64 + 128" in text
    assert "scaled_dot_product_attention 512" in text  # 4 layers, 128 steps
    assert "layers.[0-3] 18432" in text  # equal layers are one branch
    assert "of its 127 steps, 5 were measured, at 64, 95, 127, 158, 190 cached tokens" in text


def test_all_of_it_is_json(explained, steps):
    document = json.loads(explained("--json").output)
    assert document["generation"]["new_tokens"] == 128
    [target] = document["targets"]
    assert target["steps"].keys() == {each.model for each in steps}
    by_step = [each["estimate_time_s"] for each in target["steps"].values()]
    assert target["estimate_prefill_time_s"] == by_step[0]
    assert min(by_step[1:]) <= target["estimate_token_time_s"] <= max(by_step[1:])
    parts = sum(row["partial_time_s"] for row in target["operators"] if row["launches_kernel"])
    assert parts + target["overhead_time_s"] == pytest.approx(target["estimate_time_s"])
    modules = sum(row["partial_time_s"] + row["overhead_time_s"] for row in target["modules"])
    assert modules == pytest.approx(target["estimate_time_s"])


def test_energy_is_that_of_all_tokens(explained):
    energy = {
        "power_w": 50.0,
        "energy_j": 0.05,
        "energy_ci_low_j": 0.049,
        "energy_ci_high_j": 0.051,
    }
    [target] = json.loads(explained("--json", **energy, energy_reason=None).output)["targets"]
    assert target["estimate_energy_j"] == pytest.approx(50 * target["estimate_time_s"])
    assert "energy" in explained(**energy, energy_reason=None).output


def test_work_is_requests_or_new_tokens(explained):
    [target] = json.loads(explained("--json", "--per", "640 tokens").output)["targets"]
    # 640 / 128 new tokens = 5 requests
    assert target["units"]["time_s"] == pytest.approx(5 * target["estimate_time_s"])
    assert (target["units"]["samples"], target["units"]["source"]) == (128, "estimate")


def test_work_of_a_request_is_its_sequences_and_tokens_and_its_predicted_share(steps, tmp_path):
    [generation] = load_models(CONFIG.stem, CONFIG.parent).generations
    path = database(tmp_path / "d.parquet", steps)
    [found] = explain_request(generation, steps, [path])
    samples = {what: found.work(Factors(1, what)).samples for what in ("sequences", "new token")}
    assert samples == {"sequences": 1, "new token": 128}
    predicted = {generation.prefill: 0.0}
    rows = {
        name: {**row, "predicted_share": predicted.get(name, 1.0)}
        for name, row in found.request.rows.items()
    }
    changed = replace(found, request=replace(found.request, rows=rows))
    # 127 of 128 steps, which all take about as long
    assert changed.work(Factors(1, "requests")).source == "99% predicted"
    with pytest.raises(
        OpcostError, match=r"--per images: count requests, sequences or \(new\) tok"
    ):
        found.work(Factors(1, "images"))


def test_what_is_missing_is_said_once_for_all_steps(explained):
    found = explained(without={"embedding"})
    assert found.exit_code == INCOMPLETE
    assert "Not measured on local: 2 of" in found.output
    assert "No time of llama_tiny_chat: llama_tiny_chat[prompt=64]: 1 of 35" in " ".join(
        found.output.split()
    )
    assert f"opcost run {CONFIG}" in found.output


def test_a_step_is_explained_by_its_name(explained, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = explained(name="llama_tiny_chat[cache=95]")
    assert found.exit_code == 0, found.output
    assert found.output.startswith("llama_tiny_chat[cache=95] on 1x1:int64")


def test_tuples_of_all_steps_are_written(explained, tmp_path, steps):
    output = tmp_path / "tuples.parquet"
    assert explained("--parquet", str(output)).exit_code == 0
    assert set(pq.read_table(output)["model"].to_pylist()) == {each.model for each in steps}


def test_a_request_has_no_other_options(explained):
    found = explained("--batch", "4")
    assert (found.exit_code, "defines inputs, dtype and arguments" in found.output) == (1, True)


def test_the_public_models_are_explained_from_their_path(tmp_path, steps):
    path = database(tmp_path / "d.parquet", steps)
    model = Path(ROOT, "config/language_models/llama_3_2_1b.yaml")
    found = CliRunner().invoke(main, ["explain", str(model), "-d", str(path)])
    assert found.exit_code == INCOMPLETE
    assert "2048 tokens that 256 new ones follow" in found.output
