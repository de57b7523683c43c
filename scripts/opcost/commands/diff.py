"""`opcost diff`."""

from pathlib import Path
from typing import Any

import click

from opcost.commands import INCOMPLETE, UNDECIDED
from opcost.commands.parameters import Database, LimitOfIncrease, Number
from opcost.difference.databases import compare_databases
from opcost.difference.gate import KINDS, Limit, Verdict, gate
from opcost.difference.gate_text import as_markdown, as_text, write_junit
from opcost.difference.summary import model_lines, summarise
from opcost.files import check_output
from opcost.queries import listing
from opcost.rows import records
from opcost.terminal import show

_STATUS = {Verdict.WORSE: INCOMPLETE, Verdict.UNDECIDED: UNDECIDED, Verdict.NOT_WORSE: 0}


@click.command()
@click.argument("before", type=Database(), required=False)
@click.argument("after", type=Database(), required=False)
@click.option(
    "--fail-if",
    "limits",
    type=LimitOfIncrease(),
    multiple=True,
    help="Gate: exit with 3 if anything increased by more, such as time>5%, with 0 if nothing did, "
    "and with 4 if undecided. Repeat it for several limits.",
)
@click.option(
    "--by",
    type=click.Choice(KINDS),
    help="What the gate compares. Default: model, if each "
    "database lies beside the answers of its study, or else operator.",
)
@click.option(
    "--before",
    "more_before",
    type=Database(),
    multiple=True,
    help="A study before, for the gate; repeat it for several.",
)
@click.option(
    "--after",
    "more_after",
    type=Database(),
    multiple=True,
    help="A study after, for the gate; repeat it for several.",
)
@click.option("--markdown", is_flag=True, help="Print the gate's answer as Markdown.")
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE.xml",
    help="Write the gate's answer as JUnit XML.",
)
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
    before: Path | None,
    after: Path | None,
    limits: tuple[Limit, ...],
    by: str | None,
    more_before: tuple[Path, ...],
    more_after: tuple[Path, ...],
    markdown: bool,
    junit: Path | None,
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

    With --fail-if, asks instead whether anything increased by more than a limit: a gate for pull
    requests. Further studies of each side narrow the intervals.

    \b
    opcost diff old_driver/database.parquet new_driver/database.parquet
    opcost diff a.parquet b.parquet --target h200=h200_500w --level 0.01
    opcost diff --before base1/database.parquet --before base2/database.parquet \\
                --after head1/database.parquet --after head2/database.parquet --fail-if "time>5%"
    opcost diff merged.parquet merged.parquet --before-conditions f9c121f0c4b4acb9 \\
                                              --after-conditions 02d7a4cd1a9fd1a1
    """
    sides = [
        [each for each in side if each is not None]
        for side in ((before, *more_before), (after, *more_after))
    ]
    if not all(sides):
        raise click.UsageError("name a database before and one after")
    chosen: dict[str, Any] = {
        "targets": {name.partition("=")[0]: name.partition("=")[2] or name for name in targets},
        "before_conditions": before_conditions,
        "after_conditions": after_conditions,
        "level": level,
        "anyway": anyway,
    }
    if limits:
        if as_json or parquet is not None:
            raise click.UsageError("with --fail-if, use --junit instead of --json and --parquet")
        found = gate(sides[0], sides[1], limits, by=by, **chosen)
        if junit is not None:
            check_output(junit, [*sides[0], *sides[1]])
            write_junit(junit, found)
        show(as_markdown(found, limit) if markdown else as_text(found, limit))
        raise SystemExit(_STATUS[found.verdict])
    if by or markdown or junit is not None or more_before or more_after:
        raise click.UsageError(
            "--by, --markdown, --junit, --before and --after belong to a gate: add --fail-if"
        )
    [[before], [after]] = sides
    if parquet is not None:
        check_output(parquet, [before, after])
    difference = compare_databases(before, after, **chosen)
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
