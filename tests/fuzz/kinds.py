"""The kinds of cases, by name."""

from tests.fuzz import subjects
from tests.fuzz.bits import database_bits, row_file_bits
from tests.fuzz.configs import configs
from tests.fuzz.documents import device_files, manifest_files, pickles
from tests.fuzz.rows import row_values, run_values
from tests.fuzz.tally import Kind

KINDS: dict[str, Kind] = {
    "row bits": lambda folder: row_file_bits(subjects.row_file(folder)),
    "database bits": lambda folder: database_bits(subjects.database(folder)),
    "rows": row_values,
    "runs": run_values,
    "pickles": pickles,
    "manifests": manifest_files,
    "device files": device_files,
    "configs": configs,
}
