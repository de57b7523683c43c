"""`opcost completion`."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that makes SHELL complete commands, options, operators and targets.

    Operators and targets come from the database on the command line, or results/database.parquet.

    \b
    eval "$(opcost completion bash)"      in ~/.bashrc (bash 4.4 or later)
    eval "$(opcost completion zsh)"       in ~/.zshrc
    opcost completion fish | source       in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from opcost.commands import main

    complete = get_completion_class(shell)
    assert complete is not None  # click has all three
    click.echo(complete(main, {}, "opcost", "_OPCOST_COMPLETE").source())
