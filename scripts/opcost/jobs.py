"""The jobs of the workflow that run in warm workers: `python -m opcost.jobs [OPTION ...] JOB ...`.

The path of a result file states its subject; its folder contains what is known of the target.
"""

from typing import TYPE_CHECKING

from opcost.workers.client import run

if TYPE_CHECKING:
    from argparse import Namespace


def main(words: list[str]) -> None:
    """Do the job that the command line names."""
    import argparse
    from pathlib import Path

    import opcost
    from opcost.errors import reported

    parser = argparse.ArgumentParser(prog="python -m opcost.jobs", description=__doc__)
    parser.add_argument("--commit", help="of the workflow's code")
    parser.add_argument("job", choices=_JOBS)
    parser.add_argument("output", type=Path, help="the file of results to make")
    parser.add_argument("--conditions", help="of the target, as JSON")
    parser.add_argument("--definition", help="of the model, as JSON")
    parser.add_argument("--settings", default="{}", help="of the extraction, as JSON")
    parser.add_argument("--tuples", type=Path, help="the manifest, or the calls of the model")
    parser.add_argument("--search-path", type=Path, help="the folder of models")
    arguments = parser.parse_args(words)
    opcost.workflow_commit = arguments.commit
    with reported():
        _JOBS[arguments.job](arguments)


def _extract(arguments: "Namespace") -> None:
    """Extract the operators of one model."""
    from opcost.devices.lock import work_anywhere
    from opcost.planning.progress import extraction_line
    from opcost.study import ExtractionSettings, ModelDefinition
    from opcost.terminal import announce
    from opcost.tuples.containment import extract_contained
    from opcost.tuples.model_tuples import ModelTuples, write_model_tuples

    def finish(tuples: ModelTuples) -> None:
        write_model_tuples(arguments.output, tuples)
        announce(extraction_line(tuples))

    work_anywhere()
    definition = ModelDefinition.from_json(arguments.definition)
    settings = ExtractionSettings.from_json(arguments.settings)
    extract_contained(definition, arguments.search_path, settings, finish)


def _record(arguments: "Namespace") -> None:
    """Trace the calls that one model makes on a target's device."""
    from opcost.measuring.job import tracing_job
    from opcost.measuring.target_identity import TargetFiles
    from opcost.results_folder import folder_of

    files = TargetFiles.of(folder_of(arguments.output), arguments.conditions)
    tracing_job(arguments.tuples, arguments.search_path, files, arguments.output)


def _identify(arguments: "Namespace") -> None:
    """Identify the device of a target on this machine."""
    from opcost.files import replacing
    from opcost.measuring.target_identity import TargetFiles, identify_target
    from opcost.results_folder import settings_file
    from opcost.terminal import announce

    files = TargetFiles.of(arguments.output.parent, arguments.conditions)
    announce(f"[device] {files.target}: measuring the call overhead")
    with replacing(settings_file(arguments.output.parent)) as temporary:
        temporary.write_text(f"{arguments.conditions}\n")
    identify_target(files.conditions.target, arguments.output)


def _characterize(arguments: "Namespace") -> None:
    """Characterise the power sensor of a target's device."""
    from opcost.measuring.job import sensor_job
    from opcost.measuring.target_identity import TargetFiles

    sensor_job(TargetFiles.of(arguments.output.parent, arguments.conditions), arguments.output)


def _overhead(arguments: "Namespace") -> None:
    """Measure the call overhead on a target's host in a round after the first."""
    from opcost.measuring.target_identity import TargetFiles, measure_overhead

    files = TargetFiles.of(arguments.output.parent, arguments.conditions)
    settings = files.conditions.target
    measure_overhead(settings, files.target, files.device_file, arguments.output)


def _measure(arguments: "Namespace") -> None:
    """Measure one operator or model on one target."""
    from opcost.measuring.job import subject_job
    from opcost.measuring.subjects import SUBJECTS
    from opcost.measuring.target_identity import TargetFiles
    from opcost.results_folder import folder_of, series_of

    output = arguments.output
    series = series_of(output)
    named = SUBJECTS[series.kind].named
    subject = named(output.stem, arguments.tuples, arguments.search_path)
    subject.launch_mode = series.launch_mode
    subject_job(
        subject, TargetFiles.of(folder_of(output), arguments.conditions), series.round, output
    )


_JOBS = {
    "extract": _extract,
    "record": _record,
    "identify": _identify,
    "characterize": _characterize,
    "overhead": _overhead,
    "measure": _measure,
}

if __name__ == "__main__":
    run("opcost.jobs", main)
