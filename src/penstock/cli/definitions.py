"""`penstock export` and `penstock apply`: the topics and settings of a cluster as one document."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import confirm, print_json
from penstock.internal_client.client import InternalClient
from penstock.internal_client.definitions import FORMAT, Definitions, Step, carry_out, plan
from penstock.internal_client.definitions import export as read_definitions

SUBJECT = "the definitions"


def register(root: typer.Typer) -> None:
    root.command("export")(export)
    root.command("apply")(apply)


def export(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP) -> None:
    """Print topics with their settings, and settings of all brokers, as a JSON document."""
    print_json(ClusterClient(bootstrap).run(_export, SUBJECT).document())


def apply(
    file: Annotated[Path, typer.Option("--file", "-f", help="The document, as `penstock export` prints it.")],
    dry_run: Annotated[bool, typer.Option(help="Only show the steps.")] = False,
    prune: Annotated[
        bool, typer.Option(help="Also delete topics and reset settings that the document does not name.")
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Create and change topics and settings, so that they are as in a document."""
    wanted = _read(file)
    cluster = ClusterClient(bootstrap)

    async def make_plan(client: InternalClient) -> list[Step]:
        return plan(await _export(client), wanted, prune=prune)

    steps = cluster.run(make_plan, SUBJECT)
    lost = [step.topic for step in steps if step.action == "delete"]
    if lost and not dry_run:
        confirm(f"Delete {len(lost)} topics with all of their messages: {', '.join(lost)}?", yes=yes)
    if not dry_run:
        cluster.run(lambda client: _carry_out(client, steps), SUBJECT)
    _report(steps, dry_run, json)


def _report(steps: Sequence[Step], dry_run: bool, json: bool) -> None:
    if json:
        shown = [{"action": step.action, "topic": step.topic, "text": step.text} for step in steps]
        print_json({"dry_run": dry_run, "steps": shown})
        return
    for step in steps:
        typer.echo(step.text)
    if not steps:
        typer.echo("nothing to change")
    elif dry_run:
        typer.echo("dry run: nothing was changed", err=True)


async def _export(client: InternalClient) -> Definitions:
    return await read_definitions(client.topics, client.configs)


async def _carry_out(client: InternalClient, steps: Sequence[Step]) -> None:
    for step in steps:
        await carry_out(step, client.topics, client.configs)


def _read(path: Path) -> Definitions:
    hint = "`penstock export` prints a document of the right form."
    try:
        document: Any = json_module.loads(path.read_text())
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", hint) from None
    except ValueError as error:
        raise Failure(f"{path} is not JSON: {error}", hint) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Failure(f'{path} is not a document with "format": {FORMAT}', hint)
    try:
        return Definitions.read(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{path} is not a document of definitions: {error!r}", hint) from None
