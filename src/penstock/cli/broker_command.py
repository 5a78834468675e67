"""`penstock broker` in the tree of commands, for the list that `penstock --help` shows.

The command itself does not come this way: `main` calls `broker.broker`, which needs no command-line library.
"""

from __future__ import annotations

import typer


def register(root: typer.Typer) -> None:
    root.command(add_help_option=False)(broker)


def broker() -> None:
    """Run a broker."""
