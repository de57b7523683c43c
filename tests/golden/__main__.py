"""Print every number that the product derives from fixed measurements (README.md).

python -m tests.golden            print the lines
python -m tests.golden --diff     print those that differ from the expected ones: exits with 1
python -m tests.golden --write    make them the expected ones
"""

import argparse
import csv
import io
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

from opcost.costs.model_argument import find_steps, parse_input
from opcost.databases.database import REFERENCE
from opcost.models.variants import Options
from opcost.tuples.extraction import extract_model_tuples

from tests.golden.adapter import Line, of_database, of_difference, of_explanation, of_study

FOLDER = Path(__file__).parent
EXPECTED = FOLDER / "expected.csv"
STUDIES = ("default_study", "simulated_gpu", "operating_points")
MODELS = (
    *(("resnet34", "1x3x56x56"), ("resnet18", "1x3x56x56"), ("mobilenet_v2", "1x3x224x224")),
    *(("resnet50", "1x3x224x224"), ("vit_b_16", "1x3x224x224"), ("resnet50", "32x3x224x224")),
    *(("mobilenet_v2", "32x3x224x224"), ("vit_b_16", "32x3x224x224")),
)
"""Those that the reference data have completely, and some that they have in part."""


def numbers() -> Iterator[Line]:
    """All lines, in no order."""
    for study in STUDIES:
        archive = FOLDER / f"{study}.tar.xz"
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            with tarfile.open(archive) as files:
                files.extractall(filter="data")
            yield from of_study(study)
    reference = {path.name.partition("_")[0]: path for path in sorted(REFERENCE.glob("*.parquet"))}
    for name, path in reference.items():
        yield from of_database(path, name)
    for model, sizes in MODELS:
        defined, search_path = find_steps(model, Options(inputs=(parse_input(sizes),)))
        [definition] = defined.models.values()
        found = extract_model_tuples(definition, search_path)
        for line in of_explanation(found, reference):
            yield line._replace(model=f"{model} {sizes}")
    yield from of_difference(reference["h100"], reference["h200"], {"h100": "h200"}, "h100..h200")


def text() -> str:
    """The lines as CSV, sorted."""
    found = io.StringIO()
    writer = csv.writer(found, lineterminator="\n")
    writer.writerow(Line._fields)
    writer.writerows(sorted([_cell(value) for value in line] for line in numbers()))
    return found.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else " ".join(str(value).split())


def difference() -> list[str]:
    """The lines that went, with -, and those that came, with +."""
    went, came = (set(each.splitlines()) for each in (EXPECTED.read_text(), text()))
    changed = [*(f"-{each}" for each in went - came), *(f"+{each}" for each in came - went)]
    return sorted(changed, key=lambda each: (each[1:].split(",")[:5], each[0] == "+"))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--diff", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.write:
        EXPECTED.write_text(text())
    elif asked.diff:
        found = difference()
        print("\n".join(found))
        counts = Counter(each[0] for each in found)
        print(f"{counts['-']} lines went, {counts['+']} came", file=sys.stderr)
        sys.exit(bool(found))
    else:
        print(text(), end="")


if __name__ == "__main__":
    main()
