"""Rule extract: what one model executes."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    import os
    from pathlib import Path

    from opcost.devices.cores import work_anywhere
    from opcost.errors import reported
    from opcost.study import ExtractionSettings, ModelDefinition
    from opcost.tuples.containment import extract_contained
    from opcost.tuples.model_tuples import ModelTuples, write_model_tuples

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", type=ModelDefinition.from_json, required=True)
    parser.add_argument("--search-path", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    work_anywhere()

    def finish(tuples: ModelTuples) -> None:
        from opcost.planning.progress import extraction_line
        from opcost.terminal import announce

        write_model_tuples(arguments.output, tuples)
        announce(extraction_line(tuples))

    with reported():
        settings = ExtractionSettings.from_json(os.environ.get("OPCOST_EXTRACTION", "{}"))
        extract_contained(arguments.definition, arguments.search_path, settings, finish)


if __name__ == "__main__":
    run(__file__, main)
