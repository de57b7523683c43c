# What Snakemake takes for up to date and is not. It compares times of modification, and parameters
# with its own records. A file that was copied or moved here, an output restored from a backup or by
# Snakemake after a failure, a clock that was ahead, or a deleted .snakemake mislead it.
#
# A rule that makes tables notes what it made them from in results/.made/RULE.json, its last output
# (`opcost.fingerprint`). A note that no longer holds is deleted here, and the rule runs again, since
# an output is missing. Inputs are known by size, times and inode, outputs by their content.
#
#   Rule                       Made again if
#   models, collect            extracted models, or what the study asks for, are others
#   database                   any file measured in results/, of this study or not, is another
#   compare                    its inputs, among them the database, or what is asked for are others
#   report                     the same
#   extract                    the file says that it is of another definition
#   benchmark_operator, ..._again
#                              the row says that it was measured under other conditions
#   benchmark_model, ..._again the same, or another definition
#   identify_target, characterize_sensor, measure_overhead_again
#                              the file is missing: these describe a device, not the study. Each
#                              measurement compares the device with device.json.
#
# So for all of them: after a failure Snakemake deletes what a rule has made, or the note is missing.
# A kill leaves files that are whole (`opcost.files`), and no note. A file that is restored, copied,
# moved or written by hand differs from the note, or says itself what it is of.

from opcost import fingerprint
from opcost.databases.measured import find_measured
from opcost.results_folder import DATABASE, RESULTS, extraction, note

CODE = [
    fingerprint.content(path)
    for path in sorted(SCRIPTS.glob("opcost/**/*"))
    if path.suffix in {".py", ".html", ".css", ".js"}
]

ASKED = {
    name: fingerprint.of([CODE, *asked])
    for name, asked in (
        ("models", [DEFINITIONS]),
        ("collect", [DEFINITIONS, STUDY.operators]),
        ("database", [CONDITIONS]),
        ("compare", [CONDITIONS, DEFINITIONS]),
        ("report", [CONDITIONS, DEFINITIONS]),
    )
}


def forget_old_notes():
    for name, asked in ASKED.items():
        inputs = find_measured(RESULTS).files if name == "database" else None
        if not fingerprint.is_current(note(name), asked, inputs):
            checked(fingerprint.forget, note(name))


if workflow.is_main_process:
    fingerprint.end_future(RESULTS)
    forget_old_notes()

known_as_current = set()


def current(name, paths, outdated):
    """The paths, inputs of the rule of that name. Those files that are not of today's study are made again.

    `outdated` finds them; while the rule's note holds, there are none.
    """
    paths = list(paths)
    new = [Path(path) for path in paths if path not in known_as_current]
    if new and workflow.is_main_process and not note(name).exists():
        known_as_current.update(paths)
        workflow.dag.forcefiles.update(map(str, outdated([path for path in new if path.exists()])))
    return paths


def current_operators(paths):
    from opcost.databases.outdated import operators_measured_otherwise as outdated  # not each start

    return current("database", paths, lambda paths: outdated(paths, CONDITIONS, DATABASE))


def current_models(paths):
    from opcost.databases.outdated import models_measured_otherwise as outdated

    return current("compare", paths, lambda paths: outdated(paths, CONDITIONS, DEFINITIONS))


def extracted(wildcards):
    """One file for each model."""
    from opcost.databases.outdated import extracted_otherwise as outdated

    paths = [str(extraction(model)) for model in STUDY.models]
    return current("collect", paths, lambda paths: outdated(paths, DEFINITIONS))
