"""Figures that others published, and one's own beside them."""

import pytest
import yaml
from opcost.costs.published_text import published_lines
from opcost.errors import OpcostError
from opcost.published import Published, read_published
from opcost.rows.quantities import COMPARED, ENERGY, TIME
from opcost.statistics import Estimate
from opcost.study import load_study

from tests.documents import ROOT

STUDIES = sorted((ROOT / "config/studies").glob("*.yaml"))


def compared(model="net", time_s=2e-3, energy_j=0.5, target="local"):
    row = {"model": model, "target": target, "batch_size": 4}
    for quantity, value in ((TIME, time_s), (ENERGY, energy_j)):
        found = value and Estimate(value, value * 0.98, value * 1.02)
        row |= quantity.of("end_to_end").columns(found) | quantity.of("estimate").columns(found)
    return (
        row
        | {quantity.error.value: 0.03 for quantity in COMPARED}
        | {
            name: limit
            for quantity in COMPARED
            for name, limit in ((quantity.error.low, 0.01), (quantity.error.high, 0.05))
        }
    )


def written(folder, text):
    path = folder / "figures.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_a_file_has_any_of_the_figures(tmp_path):
    path = written(tmp_path, 'model,device,time_s,energy_j\n"net[batch=1,size=2]",A30,0.5,\n')
    assert read_published(path) == (Published("net[batch=1,size=2]", "A30", time_s=0.5),)


@pytest.mark.parametrize("number", ["1000", "1e3", "+1.0E+03", "1000.", " 1000 "])
def test_numbers_are_those_of_any_program(tmp_path, number):
    [found] = read_published(written(tmp_path, f"model,device,time_s\nnet,A30,{number}\n"))
    assert found.time_s == 1000


def test_a_file_of_a_spreadsheet_begins_with_a_byte_order_mark(tmp_path):
    path = written(tmp_path, "\ufeffmodel,device,time_s\r\nnet,A30,1\r\n")
    assert read_published(path) == (Published("net", "A30", time_s=1.0),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,time_s\nnet,1\n", "has no column device. Allowed: model, device, time_s"),
        ("model,device,time_ms\nnet,A30,1\n", "has a column 'time_ms'.* Did you mean 'time_s'"),
        ("model,device,time_s\nnet,A30,fast\n", "line 2, time_s: 'fast' is no number above 0"),
        ("model,device,time_s\nnet,A30,-1\n", "'-1' is no number above 0"),
        ("model,device,time_s\nnet,A30,inf\n", "'inf' is no number above 0"),
        ("model,device,time_s\nnet,A30\n,A30,1\n", "line 3: a row has a model, a device"),
        ("model,device,time_s\nnet,A30,1,2\n", "line 2: a row has a model, a device"),
        ("model,device,time_s\n\n\nnet,A30,fast\n", "line 4, time_s: 'fast'"),
        ("", "has no column model"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, message):
    with pytest.raises(OpcostError, match=message):
        read_published(written(tmp_path, text))


def test_a_study_refuses_a_missing_file_before_anything_is_measured():
    config = {
        "models": ["alexnet_224"],
        "model_directory": str(ROOT / "config/models"),
        "targets": {"local": {"device": "cpu"}},
        "published": "no.csv",
    }
    with pytest.raises(OpcostError, match=r"published: no\.csv cannot be read"):
        load_study(config)


def test_a_line_has_both_figures_of_what_was_published():
    published = Published("net", "A30", time_s=3e-3, sum_time_s=3.6e-3, sample_energy_j=0.25)
    lines = published_lines([published, Published("absent", "A30", time_s=1.0)], [compared()])
    header, line = lines[2], lines[3]
    assert "published time/sample" not in header
    assert "2.00 ms ± 2.0%" in line
    assert "3.000 ms" in line
    assert "125 mJ ± 2.0%" in line
    assert "250.0 mJ" in line
    assert "+3.0% ± 2.0%" in line
    assert "+20.0%" in line
    assert lines[-1].endswith("not in the study, or have no result yet: 1 of 2 (absent).")


def test_published_models_without_a_row_are_counted():
    others = [Published(name, "A30") for name in ("a", "b", "c", "d", "d")]
    assert published_lines(others, [compared()]) == [
        "Published models that are not in the study, or have no result yet: 4 of 4 (a, b, c, ...)."
    ]


def test_without_published_or_compared_models_there_is_no_text():
    assert published_lines([], [compared()]) == []
    assert published_lines([Published("net", "A30")], []) == []
    assert (
        "not in the study"
        not in published_lines([Published("net", "A30", time_s=1.0)], [compared()])[-1]
    )


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_shipped_studies_can_be_run(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    study = load_study(yaml.safe_load(path.read_text()))
    assert {each.model for each in study.published} <= study.models.keys()


def test_the_studies_are_those_of_their_originals(monkeypatch):
    monkeypatch.chdir(ROOT)
    studies = {path.stem: load_study(yaml.safe_load(path.read_text())) for path in STUDIES}
    assert len(studies["operator_profiling"].models) == 18
    assert len(studies["operator_profiling"].published) == 18
    assert len(studies["aipowermeter"].models) == 20 + 9 + 10 + 2
