"""`opcost diff`."""

from pathlib import Path

import click

from opcost.commands import INCOMPLETE, UNDECIDED
from opcost.commands.parameters import Database, Number
from opcost.difference.databases import compare_databases
from opcost.difference.summary import model_lines, summarise
from opcost.files import check_output
from opcost.queries import listing
from opcost.rows import records
from opcost.terminal import show


@click.command()
@click.argument("before", type=Database())
@click.argument("after", type=Database())
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="BEFORE[=AFTER]",
    help="Compare only this target, with target AFTER of the second database if given.",
)
@click.option("--before-conditions", help="The conditions_id to compare, if BEFORE is merged.")
@click.option("--after-conditions", help="The conditions_id to compare, if AFTER is merged.")
@click.option(
    "--level",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Expected share of false changes among those reported; if nothing changed, the "
    "probability of any.",
)
@click.option("--anyway", is_flag=True, help="Compare different protocol versions and settings.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of insignificant changes to list.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per operator tuple.")
@click.option(
    "--parquet", type=click.Path(path_type=Path), help="Write a row per operator tuple to a file."
)
def command(
    before: Path,
    after: Path,
    targets: tuple[str, ...],
    before_conditions: str | None,
    after_conditions: str | None,
    level: float,
    anyway: bool,
    limit: int,
    as_json: bool,
    parquet: Path | None,
) -> None:
    """Test what changed from database BEFORE to AFTER.

    Prints differences in device and software, the change common to all operators, the operators
    that deviate from it, and, with the results folders of both studies, the change of each model.
    P-values are adjusted for multiple tests (false discovery rate). Exits with 0 if nothing
    changed, with 3 if an operator did or failed in only one of the databases, and with 4 if
    undecided: a target has no operator that was measured for both, or only a change of an operator
    by more than 100 % would be found.

    \b
    opcost diff old_driver/database.parquet new_driver/database.parquet
    opcost diff a.parquet b.parquet --target h200=h200_500w --level 0.01
    opcost diff merged.parquet merged.parquet --before-conditions f9c121f0c4b4acb9 \\
                                              --after-conditions 02d7a4cd1a9fd1a1
    """
    if parquet is not None:
        check_output(parquet, [before, after])
    difference = compare_databases(
        before,
        after,
        targets={name.partition("=")[0]: name.partition("=")[2] or name for name in targets},
        before_conditions=before_conditions,
        after_conditions=after_conditions,
        level=level,
        anyway=anyway,
    )
    if parquet is not None:
        records.write_table(parquet, difference.to_table())
    if as_json:
        for line in listing.json_lines(difference.to_table()):
            show(line)
    elif parquet is None:
        models = "\n".join(model_lines(before, after))
        show("\n\n".join(filter(None, [summarise(difference, limit), models])))
    if difference.changed:
        raise SystemExit(INCOMPLETE)
    if difference.undecided:
        if as_json or parquet is not None:
            show("\n".join(difference.undecided), err=True)
        raise SystemExit(UNDECIDED)
