"""How large is the report, how long does it take to make, and to open?

Makes the results of a synthetic study (tests/synthetic_study.py: made-up numbers of made-up
devices, one of them without a power sensor) of so many operators on three targets, or takes a
folder of real ones; then prints the page's MiB, seconds to build it (reading and imports included,
in a process of its own; and those of the processor alone), and seconds in Chromium until the table
of operators can be used and until everything is drawn (the median of five times). With
`--screenshots`, writes pictures to that folder.

    PYTHONPATH=scripts python -m tests.benchmarks.report [--operators 10000]
        [--results results] [--screenshots folder]
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.browser import chromium
from tests.browser.chromium import Watched
from tests.synthetic_study import make_study

BUILD = """
import sys
from pathlib import Path
from opcost.report.page import write_report
from opcost.report.results import FILES, Results
folder = Path(sys.argv[2])
read = Results.read({name: folder / f"{name}.parquet" for name in FILES})
write_report(read, Path(sys.argv[1]))
"""
PHONE = {"width": 390, "height": 844}
SCREEN = {"width": 1360, "height": 900}
SECTIONS = ("cost", "agreement", "costs", "limits", "power", "operators", "quality", "machine")


def build(results: Path, page: Path) -> tuple[float, float]:
    """Seconds to make the page, by the clock and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", BUILD, str(page), str(results)], check=True)
    elapsed = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median_opening(browser, page: Path) -> tuple[float, float]:
    """The medians of several openings."""
    usable, drawn = zip(*(open_page(browser, page) for _ in range(5)), strict=True)
    return statistics.median(usable), statistics.median(drawn)


def open_page(browser, page: Path) -> tuple[float, float]:
    """Seconds until the table of operators can be used, and until all is drawn."""
    tab = browser.new_context(viewport=SCREEN).new_page()
    start = time.perf_counter()
    tab.goto(page.resolve().as_uri())
    tab.wait_for_selector("#operator-table button.open", timeout=120_000)
    usable = time.perf_counter() - start
    tab.wait_for_selector("html[data-ready]", timeout=120_000)
    drawn = time.perf_counter() - start
    tab.context.close()
    return usable, drawn


def take_screenshots(browser, page: Path, folder: Path) -> None:
    """Each section in light and dark and on a phone, with a row of the table open."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, scheme, size in (
        ("light", "light", SCREEN),
        ("dark", "dark", SCREEN),
        ("phone", "light", PHONE),
    ):
        context = browser.new_context(color_scheme=scheme, viewport=size)
        tab = Watched(context.new_page()).open(page).page
        tab.screenshot(path=folder / f"{name}_top.png")
        tab.locator("button.open").first.click()
        tab.locator(".details[data-filled]").wait_for()
        for section in SECTIONS:
            tab.locator(f"#{section}").screenshot(path=folder / f"{name}_{section}.png")
        context.close()


def main() -> None:
    """Print the figures of one report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--operators", type=int, default=10_000)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--screenshots", type=Path)
    arguments = parser.parse_args()
    problem = chromium.install()
    if problem is not None:
        sys.exit(problem)
    with tempfile.TemporaryDirectory() as folder, chromium.running() as browser:
        results, page = arguments.results, Path(folder) / "report.html"
        if results is None:
            names = [f"model_{number:02}" for number in range(arguments.models)]
            results = make_study(Path(folder), arguments.operators, names)
            print(f"synthetic: {arguments.operators} operators, 3 targets, {len(names)} models")
        elapsed, processor = build(results, page)
        usable, drawn = median_opening(browser, page)
        print(f"file             {page.stat().st_size / 2**20:6.1f} MiB")
        print(f"build            {elapsed:6.1f} s ({processor:.1f} s of the processor)")
        print(f"table usable     {usable:6.1f} s")
        print(f"all drawn        {drawn:6.1f} s")
        if arguments.screenshots:
            take_screenshots(browser, page, arguments.screenshots)


if __name__ == "__main__":
    main()
