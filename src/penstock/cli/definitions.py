"""`penstock export` and `penstock apply`: the definitions of a cluster as one document."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import confirm, print_json
from penstock.internal_client.client import InternalClient
from penstock.internal_client.definitions.planning import (
    Definitions,
    InvalidDefinition,
    carry_out,
    check,
    document,
    plan,
    read_document,
)
from penstock.internal_client.definitions.planning import export as read_definitions
from penstock.internal_client.definitions.reading import DefinitionReading
from penstock.internal_client.definitions.section import ApplyStep, shown

_SIGNS = {"create": "+", "change": "~", "delete": "-", "differs": "!"}
_HINT = "`penstock export` prints a document of the right form."


def register(root: typer.Typer) -> None:
    root.command("export")(export)
    root.command("apply")(apply)


def export(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP) -> None:
    """Print topics, settings, users, rules, quotas, queues and all other definitions as a JSON document."""
    print_json(document(ClusterClient(bootstrap).run(_export, "the definitions")))


def apply(
    file: Annotated[
        Path, typer.Option("--file", "-f", help="The document, as `penstock export` prints it; - for stdin.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the differences.")] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Also delete entries and reset settings that a section of the document does not name.",
        ),
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Create and change all entries that differ from a document."""
    wanted = _read(file)
    cluster = ClusterClient(bootstrap)

    async def make_plan(client: InternalClient) -> list[ApplyStep]:
        steps = plan(await read_definitions(DefinitionReading(client)), wanted, prune=prune)
        return await check(steps, client) if dry_run else steps

    steps = cluster.run(make_plan, "the definitions")
    lost = [step for step in steps if step.action == "delete"]
    if lost and not dry_run:
        listed = "".join(f"\n  {step.text}" for step in lost)
        confirm(f"{len(lost)} deletions:{listed}\nDelete them?", yes=yes)
    if not dry_run:
        cluster.run(lambda client: carry_out(steps, client))
    _report(steps, dry_run, json)
    if any(step.problem for step in steps):
        raise Failure("a broker would refuse steps of the document", "Change the entries with a problem.")


def _report(steps: Sequence[ApplyStep], dry_run: bool, json: bool) -> None:
    if json:
        print_json({"dry_run": dry_run, "steps": [step.document() for step in steps]})
        return
    for step in steps:
        text = step.text if step.action != "change" else step.text.partition(":")[0]
        typer.echo(f"{_SIGNS[step.action]} {text}")
        if step.problem:
            typer.echo(f"    refused: {step.problem}")
        if step.action == "change":
            for name, change in step.changes.items():
                typer.echo(f"    {name}: {_value(change.old)} -> {_value(change.new)}")
    if not steps:
        typer.echo("nothing to change")
    elif dry_run:
        typer.echo("dry run: nothing was changed", err=True)


def _value(value: Any) -> str:
    return "default" if value is None else shown(value)


async def _export(client: InternalClient) -> Definitions:
    return await read_definitions(DefinitionReading(client))


def _read(path: Path) -> Definitions:
    # Importing the web framework takes 0.1 s, so that only this command imports it.
    from penstock.gateway.definition_schemas import DOCUMENT, entry_at
    from penstock.gateway.http.problems import Problem
    from penstock.gateway.http.schema import Mismatch
    from penstock.gateway.http.schema import check as check_form
    from penstock.gateway.http.strict_json import parse

    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", _HINT) from None
    try:
        given = parse(data)
        check_form(given, DOCUMENT)
        return read_document(given)
    except Problem as error:
        raise Failure(f"{path} is not JSON: {error}", _HINT) from None
    except Mismatch as error:
        name = entry_at(given, error.pointer)
        place = f"{error.pointer}{f' ({name})' if name else ''}: " if error.pointer else ""
        raise Failure(f"{path}: {place}{error}", _HINT) from None
    except InvalidDefinition as error:
        raise Failure(f"{path}: {error.pointer}: {error}", _HINT) from None
