"""`penstock pipeline`: declared pipelines, and single jobs (archive, replay, compact, stats, query)."""

from __future__ import annotations

from importlib import import_module

import typer

COMMANDS = ("declared", "serve", "archive", "replay", "compact", "stats", "query", "forget")


def register(root: typer.Typer) -> None:
    app = typer.Typer(
        help="Declare pipelines, and archive, replay, compact, measure and query topics with Spark.",
        no_args_is_help=True,
    )
    for name in COMMANDS:
        import_module(f"{__name__}.{name}").register(app)
    root.add_typer(app, name="pipeline")
