"""`penstock pipeline apply|plan|delete|list|status|pause|resume|logs`: pipelines that are declared in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import NONE, confirm, print_json, print_table
from penstock.cli.pipeline.pipeline_file import read_pipelines
from penstock.cli.times import show_time
from penstock.internal_client.client import InternalClient
from penstock.internal_client.pipelines import StoredPipeline, description

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file with pipelines.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the pipeline.")]
SUBJECT = "the pipelines"
_SIGNS = {"created": "+", "changed": "~", "unchanged": "="}


def register(app: typer.Typer) -> None:
    for name, command in (
        ("apply", apply),
        ("plan", plan),
        ("delete", delete),
        ("list", list_pipelines),
        ("status", status),
        ("pause", pause),
        ("resume", resume),
        ("logs", logs),
    ):
        app.command(name)(command)


def apply(
    file: FileArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Declare the pipelines of a file, or change them. `penstock pipeline serve` runs them."""
    documents = read_pipelines(file)
    cluster = ClusterClient(bootstrap)

    async def store(client: InternalClient) -> list[dict[str, str]]:
        return [
            {"name": each["name"], "outcome": (await client.pipelines.put(each))[1]} for each in documents
        ]

    _report(cluster.run(store, SUBJECT), json)


def plan(
    file: FileArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Check a file, and show what `apply` would change. Nothing is changed."""
    documents = read_pipelines(file)
    present = {each.name: each for each in _all(ClusterClient(bootstrap))}
    steps = []
    for each in documents:
        old = present.get(each["name"])
        outcome = "created" if old is None else "unchanged" if old.document == each else "changed"
        step: dict[str, Any] = {"name": each["name"], "outcome": outcome}
        if old is not None and outcome == "changed":
            step["changes"] = _differences(old.document, each)
        steps.append(step)
    _report(steps, json, is_dry=True)


def delete(
    name: NameArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete a pipeline. Its topics, tables and archives are kept."""
    cluster = ClusterClient(bootstrap)
    _existing(cluster, name)
    confirm(f"Delete the pipeline {name}? Its targets stay.", yes=yes)
    cluster.run(lambda client: client.pipelines.delete(name), name)
    if json:
        print_json({"name": name, "deleted": True})
    else:
        typer.echo(f"deleted pipeline {name}")


def list_pipelines(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the declared pipelines with their states."""
    found = _described(ClusterClient(bootstrap))
    if json:
        print_json(found)
        return
    if not found:
        typer.echo("no pipelines; `penstock pipeline apply FILE` declares some", err=True)
        return
    columns = ["pipeline", "state", "rows", "lag", "last success", "failures"]
    print_table(columns, [_row(each) for each in found])


def status(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show the state of a pipeline: rows, lag, last success, and the reason of a failure."""
    cluster = ClusterClient(bootstrap)
    _existing(cluster, name)
    [found] = [each for each in _described(cluster) if each["name"] == name]
    if json:
        print_json(found)
        return
    typer.echo(f"pipeline {name}: {found['state']}")
    for field, value in found["status"].items():
        if field in ("state", "token") or value is None:
            continue
        is_time = field.endswith("_ms") and field.startswith(("last_", "late_", "next_", "since_"))
        label = field.removesuffix("_ms") if is_time else field
        typer.echo(f"{label.replace('_', ' ')}: {show_time(value) if is_time else value}")


def pause(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Pause a pipeline: it stops after the batch in progress."""
    _set_paused(name, True, bootstrap, json)


def resume(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Resume a paused pipeline at its last position."""
    _set_paused(name, False, bootstrap, json)


def logs(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    lines: Annotated[int, typer.Option("-n", min=1, help="Maximum number of events.")] = 100,
    json: JsonOption = False,
) -> None:
    """Show the last events of a pipeline: starts, runs, and failures with their reasons."""
    cluster = ClusterClient(bootstrap)
    _existing(cluster, name)
    events = cluster.run(lambda client: client.pipelines.events(name, lines), name)
    if json:
        print_json(events)
        return
    for event in events:
        rest = " ".join(
            f"{field}={value}" for field, value in event.items() if field not in ("at_ms", "event")
        )
        typer.echo(f"{show_time(event.get('at_ms', -1))} {event.get('event', '')} {rest}".rstrip())


def _set_paused(name: str, is_paused: bool, bootstrap: str, json: bool) -> None:
    cluster = ClusterClient(bootstrap)
    pipeline = _existing(cluster, name)
    if pipeline.is_paused != is_paused:
        cluster.run(lambda client: client.pipelines.set_paused(pipeline, is_paused), name)
    if json:
        print_json({"name": name, "paused": is_paused})
    else:
        typer.echo(f"{'paused' if is_paused else 'resumed'} pipeline {name}")


def _all(cluster: ClusterClient) -> list[StoredPipeline]:
    return cluster.run(lambda client: client.pipelines.all(), SUBJECT)


def _described(cluster: ClusterClient) -> list[dict[str, Any]]:
    async def read(client: InternalClient) -> list[dict[str, Any]]:
        found, statuses = await client.pipelines.all(), await client.pipelines.statuses()
        return [description(each, statuses.get(each.name)) for each in found]

    return cluster.run(read, SUBJECT)


def _existing(cluster: ClusterClient, name: str) -> StoredPipeline:
    found = cluster.run(lambda client: client.pipelines.get(name), name)
    if found is None:
        raise Failure(
            f"there is no pipeline {name!r}",
            "`penstock pipeline list` shows the pipelines, `penstock pipeline apply FILE` declares some.",
            code=ExitCode.FAILED,
        )
    return found


def _row(found: Mapping[str, Any]) -> list[object]:
    known = found["status"]
    lag = known.get("lag_records")
    return [
        found["name"],
        found["state"],
        known.get("rows", 0),
        NONE if lag is None else lag,
        show_time(known.get("last_success_ms") or -1),
        known.get("failures", 0),
    ]


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _report(steps: list[dict[str, Any]], json: bool, *, is_dry: bool = False) -> None:
    if json:
        print_json({"dry_run": is_dry, "pipelines": steps})
        return
    for step in steps:
        changes = f" ({', '.join(step['changes'])})" if step.get("changes") else ""
        typer.echo(f"{_SIGNS[step['outcome']]} {step['name']}: {step['outcome']}{changes}")
    if is_dry:
        typer.echo("plan only: nothing was changed", err=True)
