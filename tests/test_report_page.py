"""The report in a real browser: what people see of it, and what they can do."""

import csv
import re

import pytest
from opcost.report.page import write_report
from opcost.report.results import FILES, Results
from opcost.rows.flags import DRIFTING, meaning

from tests.browser import chromium
from tests.browser.chromium import Watched
from tests.synthetic_study import NO_SENSOR, TARGETS, make_study

pytestmark = pytest.mark.browser

HOSTILE = "<b>x</b><script>document.title='taken'</script>"


def report_of(folder, **study):
    make_study(folder, **study)
    path = folder / "report.html"
    write_report(Results.read({name: folder / f"{name}.parquet" for name in FILES}), path)
    return path


@pytest.fixture(scope="module")
def browser():
    problem = chromium.install()
    if problem is not None:
        pytest.skip(problem)
    with chromium.running() as browser:
        yield browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A study of three targets, with failures, flags and a target without energy."""
    return report_of(tmp_path_factory.mktemp("report"), models=("first", HOSTILE, "third"))


@pytest.fixture
def opened(browser, path):
    """Open the report, or another; each page is closed at the end of the test."""
    contexts = []

    def opened(other=None, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        return Watched(context.new_page()).open(other or path)

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def page(opened):
    return opened().page


def shown_rows(page):
    return page.locator("#operator-table tbody tr:has(button.open)")


def numbers(text):
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", text)]


def test_it_asks_for_nothing_but_itself_and_nothing_goes_wrong(opened, path):
    watched = opened()
    fetched = [url for url in watched.requests if not url.startswith(("blob:", "data:"))]
    assert fetched == [path.resolve().as_uri()]
    assert watched.problems == []


def test_every_chart_has_marks(page):
    charts = page.locator(".chart")
    assert charts.count() >= 10
    for index in range(charts.count()):
        marks = charts.nth(index).locator("svg .role-mark path")
        assert marks.count() > 0, charts.nth(index).evaluate("chart => chart.innerHTML")


def test_what_is_not_drawn_yet_says_so(browser, path):
    page = browser.new_page(java_script_enabled=False)
    page.goto(path.resolve().as_uri())
    for empty in (".chart", "#icicle", "#operators .scrolling"):
        said = f"getComputedStyle(document.querySelector('{empty}'), '::before').content"
        assert "JavaScript" in page.evaluate(said)
    page.close()


def test_every_chart_says_what_it_shows(page):
    for svg in page.locator(".chart svg").all():
        assert svg.get_attribute("aria-label") or svg.locator("[aria-label]").count()


def test_bars_become_shares_and_times_again(page):
    axis = page.locator("#costs .chart").first.locator(".role-axis-label").first
    assert "%" not in axis.text_content()
    page.get_by_label("in shares of each model").check()
    page.wait_for_function(
        "document.querySelector('#costs .chart .role-axis-label').textContent.includes('%')"
    )
    page.get_by_label("in shares of each model").uncheck()
    page.wait_for_function(
        "!document.querySelector('#costs .chart .role-axis-label').textContent.includes('%')"
    )


def test_the_search_filters(page):
    info = page.locator(".dt-info").last
    assert numbers(info.inner_text())[-1] == 180
    page.locator("#operators .dt-search input").fill("relu_ small_gpu")
    page.wait_for_function("document.querySelector('#operators .dt-info').innerText.includes('12')")
    assert set(shown_rows(page).locator("td.choice:nth-child(2)").all_inner_texts()) == {"relu_"}


def test_a_column_can_be_filtered_by_its_values(page):
    page.locator("#operator-table thead th", has_text="status").locator("button").last.click()
    page.locator(".dtcc-dropdown").get_by_role("button", name="out_of_memory").click()
    page.keyboard.press("Escape")
    assert shown_rows(page).count() == 3
    assert "out_of_memory" in shown_rows(page).first.inner_text()


def test_a_title_sorts(page):
    def times():
        texts = shown_rows(page).locator("td:nth-child(9)").all_inner_texts()
        return [float(text.replace(",", "")) for text in texts if text != "\N{EN DASH}"]

    title = page.locator("#operator-table thead th").nth(8)
    assert title.inner_text() == "time (µs)"
    while title.get_attribute("aria-sort") != "ascending":
        title.locator(".dt-column-order").click()
        page.wait_for_timeout(100)
    assert len(times()) > 3
    assert times() == sorted(times())


def test_a_row_opens_its_raw_blocks_power_and_conditions(page):
    page.locator("#operators .dt-search input").fill("conv2d large_gpu")
    shown_rows(page).first.locator("button.open").click()
    details = page.locator(".details[data-filled]")
    details.wait_for()
    assert details.locator(".chart").count() == 2
    assert details.locator(".chart").first.locator("svg .mark-symbol.role-mark path").count() == 40
    assert details.locator(".chart").last.locator("svg .mark-symbol.role-mark path").count() == 60
    text = details.inner_text()
    assert "40 blocks of iterations." in text
    assert "60 refreshes." in text
    assert "canonical_json" in text
    details.get_by_text("All measurements on large_gpu").click()
    assert "torch_version\n2.15.0" in details.inner_text()
    assert details.locator("a.csv").count() == 2


def test_a_row_that_failed_opens_its_error(page):
    page.locator("#operators .dt-search input").fill("out_of_memory")
    shown_rows(page).first.locator("button.open").click()
    page.locator(".details[data-filled]").wait_for()
    text = page.locator(".details").inner_text()
    assert "There are no raw values." in text
    assert "tried to allocate 80 GiB" in text


def test_flags_are_explained_where_a_row_has_them(page):
    page.locator("#operators .dt-search input").fill("drifting")
    shown_rows(page).first.locator("button.open").click()
    page.locator(".details[data-filled]").wait_for()
    assert f"drifting: {meaning(DRIFTING)}" in page.locator(".details").inner_text()


def test_the_keyboard_reaches_the_table_and_opens_a_row(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#operator-table button.open')"):
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.locator(".details[data-filled]").wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.keyboard.press("Enter")
    assert page.locator(".details").count() == 0


def test_shares_of_the_models_come_first(page):
    texts = shown_rows(page).locator("td:nth-child(5)").all_inner_texts()
    shares = [float(text) for text in texts]
    assert len(shares) == 15
    assert shares == sorted(shares, reverse=True)


def test_a_module_is_enlarged_and_its_rows_are_shown(page):
    page.locator("#icicle-model").select_option(label="third on processor")
    module = page.locator("#icicle button", has_text="stage2").first
    before = module.bounding_box()["width"]
    module.click()
    assert module.bounding_box()["width"] > 2 * before
    page.get_by_role("button", name="Show its operators").click()
    assert page.locator("#chosen").inner_text().startswith("stage2 of third")
    assert set(shown_rows(page).locator("td:nth-child(3)").all_inner_texts()) == {"processor"}
    assert "third" in shown_rows(page).first.inner_text()
    page.get_by_role("button", name="Show all").click()
    assert numbers(page.locator("#operators .dt-info").inner_text())[-1] == 180


def test_the_keyboard_walks_the_modules(page):
    page.locator("#icicle-model").focus()
    reached = "document.activeElement.closest('#icicle')"
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.evaluate(f"{reached} !== null"):
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    name = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert name.startswith("stage1")
    page.keyboard.press("Enter")
    assert page.locator("#icicle-said").inner_text().startswith("stage1")
    assert page.evaluate(f"{reached} !== null")
    page.keyboard.press("Escape")
    assert page.locator("#icicle button").first.inner_text().startswith("first")


def test_an_operator_of_a_card_shows_its_rows(opened, tmp_path):
    page = opened(report_of(tmp_path, targets=TARGETS[:1])).page
    page.locator("button.show[data-model=third]", has_text="conv2d").first.click()
    assert page.locator("#chosen").inner_text().startswith("conv2d of third")
    assert shown_rows(page).count() == 4
    assert set(shown_rows(page).locator("td:nth-child(2)").all_inner_texts()) == {"conv2d"}


def test_costs_are_above_the_fold(opened, tmp_path):
    few = report_of(tmp_path, targets=TARGETS[:1])
    for width, height, seen in ((1400, 900, 3), (390, 844, 1)):
        page = opened(few, viewport={"width": width, "height": height}).page
        boxes = [card.bounding_box() for card in page.locator(".card .parts").all()]
        assert sum(box["y"] + 60 < height for box in boxes) >= seen


def test_a_table_of_models_sorts_by_cost(page):
    page.locator(".cards-table thead th", has_text="time").first.click()
    first = page.locator(".cards-table tbody tr").first
    assert first.locator("td").first.inner_text() == "large_gpu"


def test_a_table_of_models_can_be_filtered(page):
    page.locator(".cards-table thead th", has_text="target").locator("button").last.click()
    page.locator(".dtcc-dropdown").get_by_role("button", name="processor").click()
    rows = page.locator(".cards-table tbody tr")
    assert rows.count() == 3
    assert set(rows.locator("td:nth-child(2)").all_inner_texts()) == {"processor"}


def test_every_chart_has_its_data_as_csv(page):
    links = page.locator("figure a.csv")
    assert links.count() == page.locator("figure:has(.chart), figure:has(#icicle)").count()
    with page.expect_download() as download:
        links.first.click()
    assert download.value.suggested_filename.endswith(".csv")
    for link in links.all():
        text = link.evaluate("link => fetch(link.href).then((found) => found.text())")
        header, *rows = csv.reader(text.splitlines())
        assert rows
        assert {len(row) for row in rows} == {len(header)}
        assert len(set(header)) == len(header)


def luminance(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def colours(page):
    return (
        page.evaluate("getComputedStyle(document.documentElement).backgroundColor"),
        page.evaluate("getComputedStyle(document.querySelector('.chart text')).fill"),
    )


def test_light_is_light_and_dark_is_dark_charts_included(opened):
    light = colours(opened(color_scheme="light").page)
    dark = colours(opened(color_scheme="dark").page)
    assert luminance(light[0]) > luminance(light[1]) + 300
    assert luminance(dark[1]) > luminance(dark[0]) + 300


def test_paper_is_light_and_has_no_controls(opened):
    page = opened(color_scheme="dark").page
    controls = "#operators .dt-search, #operators .dt-paging, .vega-bind, nav, button.open"
    assert page.locator(controls).first.is_visible()
    page.emulate_media(media="print", color_scheme="dark")
    visible = [control for control in page.locator(controls).all() if control.is_visible()]
    assert visible == []
    background, text = colours(page)
    assert luminance(background) > luminance(text) + 300
    assert page.locator("#operator-table tbody tr").first.is_visible()


def test_a_phone_need_not_scroll_sideways(opened):
    page = opened(viewport={"width": 375, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_failures_have_their_reason(page):
    quality = page.locator("#quality").inner_text()
    assert "out_of_memory" in quality
    assert "tried to allocate 80 GiB" in quality
    assert not page.locator("#agreement li", has_text="operator tuples failed").is_visible()
    page.get_by_text(re.compile("^Caveats")).click()
    assert "1 of 20 operator tuples failed" in page.locator("#agreement").inner_text()


def test_a_target_without_energy_says_why(page):
    assert f"No energy on processor: {NO_SENSOR}." in page.locator("#cost").inner_text()


def test_a_study_without_any_energy_has_no_charts_of_it_and_says_why(opened, tmp_path):
    [processor] = [target for target in TARGETS if target.idle_power_w is None]
    watched = opened(report_of(tmp_path, targets=[processor], faulty=False))
    assert watched.problems == []
    assert NO_SENSOR in watched.page.locator("#cost").inner_text()
    assert "energy" not in watched.page.locator("#operator-table thead").inner_text()
    assert (
        "No measurement of an operator or an eager model failed."
        in watched.page.locator("#quality").inner_text()
    )


def test_names_are_text_whatever_they_contain(page):
    assert page.title() != "taken"
    assert page.locator("b", has_text="x").filter(has_not_text="_").all_inner_texts() == []
    assert HOSTILE in page.locator("#models").inner_text()
