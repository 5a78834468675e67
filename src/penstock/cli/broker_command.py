"""Entry of `penstock broker` in the command list of `penstock --help`.

`main` runs the command by calling `broker.broker`, which does not load typer.
"""

from __future__ import annotations

import typer


def register(root: typer.Typer) -> None:
    root.command(add_help_option=False)(broker)


def broker() -> None:
    """Run a broker."""
