"""Rule benchmark_operator: the row of one operator tuple on one target."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.errors import reported
    from opcost.measuring.job import subject_job
    from opcost.measuring.subjects import OperatorSubject
    from opcost.measuring.target_files import TargetFiles
    from opcost.results_folder import replicate_of
    from opcost.tuples.manifest import read_record

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuple-id", required=True)
    parser.add_argument("--manifest", type=Path, required=True)
    TargetFiles.add_arguments(parser)
    arguments = parser.parse_args()
    with reported():
        subject = OperatorSubject(read_record(arguments.manifest, arguments.tuple_id))
        files = TargetFiles.from_arguments(arguments)
        subject_job(subject, files, replicate_of(arguments.output), arguments.output)


if __name__ == "__main__":
    run(__file__, main)
