"""Rule benchmark_model: the row of one whole model on one target."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.errors import reported
    from opcost.measuring.job import subject_job
    from opcost.measuring.subjects import ModelSubject
    from opcost.measuring.target_files import TargetFiles
    from opcost.models.definition import ModelDefinition
    from opcost.results_folder import replicate_of

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", type=ModelDefinition.from_json, required=True)
    parser.add_argument("--search-path", type=Path, required=True)
    TargetFiles.add_arguments(parser)
    arguments = parser.parse_args()
    with reported():
        subject = ModelSubject(arguments.definition, arguments.search_path)
        files = TargetFiles.from_arguments(arguments)
        subject_job(subject, files, replicate_of(arguments.output), arguments.output)


if __name__ == "__main__":
    run(__file__, main)
