"""Rule record_calls: the calls that one model makes on one target's device."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.errors import reported
    from opcost.measuring.job import recording_job
    from opcost.measuring.target_files import TargetFiles
    from opcost.models.definition import ModelDefinition

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", type=ModelDefinition.from_json, required=True)
    parser.add_argument("--tuples", type=Path, required=True, help="the model's extraction")
    parser.add_argument("--search-path", type=Path, required=True, help="the folder of models")
    TargetFiles.add_arguments(parser)
    arguments = parser.parse_args()
    with reported():
        files = TargetFiles.from_arguments(arguments)
        recording_job(
            arguments.definition, arguments.tuples, arguments.search_path, files, arguments.output
        )


if __name__ == "__main__":
    run(__file__, main)
