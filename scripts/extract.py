"""Rule extract: what one model executes."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.devices.cores import work_anywhere
    from opcost.errors import reported
    from opcost.study import ModelDefinition

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", type=ModelDefinition.from_json, required=True)
    parser.add_argument("--search-path", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    work_anywhere()
    with reported():
        from opcost.planning.progress import extraction_line
        from opcost.terminal import announce
        from opcost.tuples.extraction import extract_model_tuples
        from opcost.tuples.model_tuples import write_model_tuples

        tuples = extract_model_tuples(arguments.definition, arguments.search_path)
        write_model_tuples(arguments.output, tuples)
        announce(extraction_line(tuples))


if __name__ == "__main__":
    run(__file__, main)
