"""The script that draws the report's charts is bundled once for each user."""

import pytest
import vl_convert
from opcost.report.chart_library import chart_library


def refuse(_: str) -> str:
    raise AssertionError("bundled again")


def test_it_is_bundled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bundled = chart_library()
    assert "window.vegaEmbed" in bundled
    monkeypatch.setattr(vl_convert, "javascript_bundle", refuse)
    assert chart_library() == bundled


def test_another_version_is_bundled_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda _: "old")
    assert chart_library() == "old"
    monkeypatch.setattr("opcost.report.chart_library.version", lambda _: "1000")
    monkeypatch.setattr(vl_convert, "javascript_bundle", refuse)
    with pytest.raises(AssertionError, match="bundled again"):
        chart_library()


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda _: "bundle")
    assert chart_library() == "bundle"
