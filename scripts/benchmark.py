"""Rules benchmark_operator and benchmark_model: the row of one subject on one target."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.errors import OpcostError, reported
    from opcost.measuring.job import subject_job
    from opcost.measuring.subjects import SUBJECTS
    from opcost.measuring.target_files import TargetFiles
    from opcost.results_folder import series_named

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", required=True, help="the name of its folder")
    parser.add_argument("--subject", required=True, help="a tuple id, or a model's definition")
    parser.add_argument(
        "--tuples",
        type=Path,
        required=True,
        help="the manifest, or the calls expected of the model",
    )
    parser.add_argument("--search-path", type=Path, required=True, help="the folder of models")
    TargetFiles.add_arguments(parser)
    arguments = parser.parse_args()
    with reported():
        series = series_named(arguments.series)
        if series is None:
            raise OpcostError(f"--series {arguments.series}: no folder of measurements")
        named = SUBJECTS[series.kind].named
        subject = named(arguments.subject, arguments.tuples, arguments.search_path)
        subject.launch_mode = series.launch_mode
        files = TargetFiles.from_arguments(arguments)
        subject_job(subject, files, series.round, arguments.output)


if __name__ == "__main__":
    run(__file__, main)
