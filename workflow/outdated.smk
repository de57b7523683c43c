# Detects outputs that Snakemake believes to be up to date. It compares modification times, and
# parameters with its own records. Both mislead after a file was copied, moved or restored, while a
# clock was ahead, and if .snakemake was deleted.
#
# A rule that makes tables records their inputs in a note, its last output (`opcost.fingerprint`).
# The text of a rule's command is in no note, and no reason to run it again (snakemake_internals.py).
# An invalid note is deleted here, and the rule runs again because an output is missing. Inputs are
# identified by size, times and inode, outputs by content.
#
#   Rule                       Runs again if
#   models, collect            the extracted models, or the study's request, differ
#   database                   any measured file in results/, of this study or not, differs
#   compare, report            their inputs, or the study's request, differ
#   extract                    the file is of another definition
#   benchmark_operator         the row was measured under other conditions
#   benchmark_model            the same, or another definition
#   identify_target, characterize_sensor, measure_overhead_again
#                              the file is missing: these describe a device, not the study. Each
#                              measurement compares the device with device.json.
#
# After a failure, Snakemake deletes a rule's outputs, or the note is missing. A kill leaves
# complete files (`opcost.files`) and no note.

from opcost import fingerprint
from opcost.databases.measured import find_measured
from opcost.results_folder import DATABASE, RESULTS, extraction, note

CODE = [
    fingerprint.content(path)
    for path in sorted(SCRIPTS.glob("**/*"))
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
    fingerprint.clamp_future_times(RESULTS)
    forget_old_notes()

known_as_current = set()


def current(name, paths, outdated):
    """The paths, inputs of a rule. Snakemake makes those again that are not of today's study.

    `outdated` finds them; there are none while the rule's note is valid.
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
