# Detects outputs that Snakemake believes to be up to date, and keeps those that it believes are not.
# It compares modification times, and parameters with its own records. Both mislead after a file was
# copied, moved or restored, while a clock was ahead, and if .snakemake was deleted. Its records are
# therefore not asked (snakemake_internals.py).
#
# A rule that makes tables records their inputs in a note, its last output (`opcost.fingerprint`).
# The rule runs again if its note is invalid. Inputs are identified by size, times and inode, outputs
# by content.
#
#   Rule                       Runs again if
#   plan_round                 what was measured before, or the study's request, differs; or a budget
#                              cut the round, for a run has all of it anew
#   models, collect            the extracted models, or the study's request, differ
#   database                   any measured file in results/, of this study or not, or the study's
#                              request differs
#   compare, report            their inputs, or the study's request, differ
#   extract                    the file is of another definition
#   record_calls               the same, or of another device
#   benchmark_operator         the row was measured under other conditions
#   benchmark_model            the same, or another definition
#   identify_target, measure_overhead
#                              the file was made with other settings of the target; those of the
#                              measurement are no reason, nor is the device: each measurement
#                              compares it with device.json
#   characterize_sensor        the target requests another device
#
# After a failure, Snakemake deletes a rule's outputs, or the note is missing. A kill leaves
# complete files (`opcost.files`) and no note.

import sys
import time
from dataclasses import asdict

from opcost import fingerprint
from opcost.databases.measured import find_measured
from opcost.results_folder import (
    DATABASE,
    RESULTS,
    check_results,
    extraction,
    note,
    round_plan,
    target_of,
)
from opcost.text import counted

CODE = [
    fingerprint.content(path)
    for path in sorted({*SCRIPTS.glob("**/*"), *PACKAGE.glob("**/*")})
    if path.suffix in {".py", ".html", ".css", ".js"}
]

ASKED = {
    # Other code makes other tables of the same rows. It plans no finished round again: that would
    # measure.
    name: fingerprint.of(asked if name == "rounds" else [CODE, *asked])
    for name, asked in (
        ("models", [DEFINITIONS]),
        ("collect", [MODELS_ON, DEFINITIONS, STUDY.operators]),
        # Rows of what was not asked for before may be of other conditions.
        ("database", [CONDITIONS, MODELS_ON, DEFINITIONS, STUDY.operators]),
        (
            "rounds",
            [
                *(MODELS_ON, DEFINITIONS, CONDITIONS, asdict(STUDY.precision)),
                STUDY.max_device_time_s,
                *([STUDY.launch_modes] if STUDY.launch_modes else []),  # the budget pays for them
            ],
        ),
        (
            "compare",
            [
                *(MODELS_ON, CONDITIONS, DEFINITIONS, GENERATIONS, SWEEPS_OF_STUDY),
                *(STUDY.launch_modes, STUDY.precision.models),
                *map(asdict, STUDY.published),
            ],
        ),
        ("report", [CONDITIONS, DEFINITIONS, STUDY.launch_modes]),
    )
}


def with_invalid_note():
    """The rules whose note does not describe the present study and files."""
    inputs = {"database": find_measured(RESULTS).files}
    plans = {
        f"{target}_round_{number}": path
        for target, folder in MEASURED.items()
        for number in range(2, STUDY.rounds + 1)
        if (path := round_plan(folder, number)).exists()
    }
    asked = {name: each for name, each in ASKED.items() if name != "rounds"}
    asked |= dict.fromkeys(plans, ASKED["rounds"])
    return {
        name
        for name, each in asked.items()
        if not fingerprint.is_current(note(name), each, inputs.get(name))
        or (name in plans and checked(read_round, plans[name]).is_cut)
    }


INVALID, BEGAN_S, LOCK_BEFORE = set(), 0.0, ""
if workflow.is_main_process:
    checked(check_results)
    fingerprint.clamp_future_times(RESULTS)
    LOCK_BEFORE = identity(LOCK)  # changes as runs begin and end
    BEGAN_S = time.time()  # after files of a later time are taken for those of now
    INVALID = with_invalid_note()


def forget_invalid_notes():
    """Not before the run holds the folder: another may be about to write them."""
    for name in INVALID:
        checked(fingerprint.forget, note(name))


known_as_current = set()


def current(name, paths, outdated, kind=None):
    """The paths, inputs of a rule. Snakemake makes those again that are not of today's study.

    `outdated` finds them; there are none while the rule's note is valid. Measurements, which are of
    a `kind`, are announced, and there may be some all the same: an earlier run may have left them
    out, for its budget or because it was interrupted.
    """
    paths = list(paths)
    workflow.dag.forcefiles.update(str(note(each)) for each in INVALID)
    make_missing(name, paths)
    new = [Path(path) for path in paths if path not in known_as_current]
    if new and (name in INVALID or (kind and workflow.is_main_process)):
        known_as_current.update(paths)
        found = outdated([path for path in new if path.exists()])
        workflow.dag.forcefiles.update(map(str, found))
        if found and kind:
            workflow.dag.forcefiles.add(str(note(name)))
            rows = counted(len(found), f"measured {kind}")
            targets = " ".join(sorted({target_of(path) for path in found}))
            print(
                f"{rows} of other settings, or of another protocol version: to be replaced. To keep "
                f"such rows, stop this and first run: opcost set-aside {targets}",
                file=sys.stderr,
            )
    return paths


def make_missing(name, paths):
    """Let a rule run if some of its inputs are missing.

    Snakemake makes inputs of rules that run. While a checkpoint of its inputs is to be made, it looks
    for no reason to run one, and would leave out that checkpoint, too.
    """
    if not all(Path(path).exists() for path in paths):
        workflow.dag.forcefiles.add(str(note(name)))


def current_operators(paths):
    from opcost.databases.outdated import operators_measured_otherwise as outdated  # not each start

    return current(
        "database", paths, lambda paths: outdated(paths, CONDITIONS, DATABASE), "operator"
    )


def current_models(paths):
    from opcost.databases.outdated import models_measured_otherwise as outdated

    return current(
        "compare", paths, lambda paths: outdated(paths, CONDITIONS, DEFINITIONS), "model"
    )


def current_devices(paths):
    from opcost.databases.outdated import identified_otherwise as outdated

    return current("database", paths, lambda paths: outdated(paths, SETTINGS))


def current_recordings(paths):
    from opcost.databases.outdated import recorded_otherwise as outdated

    return current("compare", paths, lambda paths: outdated(paths, DEFINITIONS))


def extracted(wildcards):
    """One file for each model."""
    from opcost.databases.outdated import extracted_otherwise as outdated

    paths = [str(extraction(model)) for model in STUDY.models]
    return current("collect", paths, lambda paths: outdated(paths, DEFINITIONS))
