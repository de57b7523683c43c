"""`opcost set-aside`."""

import click

from opcost.terminal import show


@click.command()
@click.argument("targets", nargs=-1, required=True)
def command(targets: tuple[str, ...]) -> None:
    """Keep the measurements of TARGETS under another name; the next run measures them again.

    Run it in the study's folder after an upgrade of PyTorch, driver or machine. It renames
    results/TARGET to results/TARGET_YYYY_MM_DD, which becomes a separate target. Its rows stay in
    the database and can be compared with those of the next run.

    \b
    opcost set-aside local
    snakemake --cores 1
    opcost diff results/database.parquet results/database.parquet --target local_2026_11_22=local
    """
    from contextlib import closing

    from opcost.environments.set_aside import set_aside
    from opcost.results_folder import RESULTS, target_folder
    from opcost.run_lock import RunLock

    with closing(RunLock()) as lock:
        lock.hold("opcost set-aside")
        for target in targets:
            new = target_folder(set_aside(target, RESULTS))
            show(
                f"{target_folder(target)} is now {new}. "
                f"If the study has a target {target}, the next run measures it."
            )
