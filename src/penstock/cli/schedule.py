"""`penstock schedule`: recurring messages, by cron expressions or intervals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json, print_table
from penstock.cli.record import parse_headers
from penstock.cli.times import show_time
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.schedule_documents import details_document, summary_document
from penstock.internal_client.schedules import NewSchedule, ScheduleCalls, ScheduleDetails

T = TypeVar("T")

app = typer.Typer(help="Create and manage recurring messages.", no_args_is_help=True)


class CatchUp(StrEnum):
    NONE = "none"
    ONE = "one"
    ALL = "all"


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]
CronOption = Annotated[
    str,
    typer.Option(
        metavar="EXPRESSION",
        help="Five fields such as '0 9 * * MON-FRI', six with seconds first, '@daily', or '@every 90s'.",
    ),
]
TimezoneOption = Annotated[str, typer.Option(help="The time zone of the expression, such as Europe/Berlin.")]
TopicOption = Annotated[str, typer.Option(help="The topic of the messages.")]
KeyOption = Annotated[str | None, typer.Option(help="The key of the messages.")]
ValueOption = Annotated[str | None, typer.Option(help="The value of the messages.")]
ValueFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file with the value of the messages.")
]
HeaderOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of the messages; repeatable.")
]
CatchUpOption = Annotated[
    CatchUp, typer.Option(help="Which missed times to make up for: none, the last one, or all.")
]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="schedule")


@app.command()
def create(
    name: NameArgument,
    cron: CronOption,
    topic: TopicOption,
    timezone: TimezoneOption = "UTC",
    key: KeyOption = None,
    value: ValueOption = None,
    value_file: ValueFileOption = None,
    header: HeaderOption = None,
    catch_up: CatchUpOption = CatchUp.ONE,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Create a schedule that sends a message to a topic at recurring times."""
    new = NewSchedule(
        name,
        cron,
        topic,
        timezone,
        None if key is None else key.encode(),
        _value(value, value_file),
        parse_headers(header or []),
        catch_up.value,
    )
    details = _call(bootstrap, name, lambda schedules: schedules.create(new))
    if json:
        print_json(details_document(details))
        return
    typer.echo(f"created schedule {name}; it fires next at {_next(details)}")


@app.command("list")
def list_schedules(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the schedules with the next time of each."""
    found = _call(bootstrap, "the schedules", lambda schedules: schedules.all())
    if json:
        print_json([summary_document(each) for each in found])
    elif found:
        rows = [
            (
                each.name,
                each.cron,
                each.timezone,
                each.topic,
                "paused" if each.next_ms is None else show_time(each.next_ms),
                str(each.fired),
                str(each.missed),
            )
            for each in found
        ]
        print_table(["schedule", "cron", "time zone", "topic", "next", "fired", "missed"], rows)
    else:
        typer.echo("there is no schedule; `penstock schedule create` creates one", err=True)


@app.command()
def describe(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show a schedule with its message and its next five times."""
    details = _call(bootstrap, name, lambda schedules: schedules.describe(name))
    shown = details_document(details)
    if json:
        print_json(shown)
        return
    rows: list[tuple[str, Any]] = [
        ("name", name),
        ("cron", shown["cron"]),
        ("time zone", shown["timezone"]),
        ("topic", shown["topic"]),
        ("catch-up", shown["catch_up"]),
        ("paused", "yes" if shown["paused"] else "no"),
        *((label, shown[label]) for label in ("created", "last", "fired", "missed", "problem")),
    ]
    rows += [
        (label, shown[label]) for label in ("key", "key_base64", "value", "value_base64") if label in shown
    ]
    rows += [
        (f"header {each['name']}", each.get("value", each.get("value_base64")))
        for each in shown.get("headers", ())
    ]
    rows += [("next times", _local(each, details.summary.timezone)) for each in details.next_times_ms]
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        typer.echo(f"{label:<{width}}  {'-' if value is None else value}")


@app.command()
def pause(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Pause a schedule until it is resumed."""
    details = _call(bootstrap, name, lambda schedules: schedules.pause(name))
    print_json(details_document(details)) if json else typer.echo(f"paused schedule {name}")


@app.command()
def resume(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Resume a paused schedule. For times during the pause no message is sent."""
    details = _call(bootstrap, name, lambda schedules: schedules.resume(name))
    if json:
        print_json(details_document(details))
    else:
        typer.echo(f"resumed schedule {name}; it fires next at {_next(details)}")


@app.command("run")
def run_now(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Send the message of a schedule now, in addition to the scheduled times."""
    time_ms = _call(bootstrap, name, lambda schedules: schedules.run(name))
    if json:
        print_json({"name": name, "scheduled_for": show_time(time_ms), "scheduled_for_ms": time_ms})
    else:
        typer.echo(f"schedule {name} fires now")


@app.command()
def delete(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Delete a schedule. The messages that it has sent stay in the topic."""
    _call(bootstrap, name, lambda schedules: schedules.delete(name))
    print_json({"deleted": name}) if json else typer.echo(f"deleted schedule {name}")


def _call(bootstrap: str, subject: str, work: Callable[[ScheduleCalls], Awaitable[T]]) -> T:
    async def call(client: InternalClient) -> T:
        try:
            return await work(client.schedules)
        except BrokerError as error:
            if error.code is not ErrorCode.resource_not_found:
                raise
            raise Failure(str(error), "`penstock schedule list` lists the schedules.") from None

    return ClusterClient(bootstrap).run(call, subject)


def _value(value: str | None, file: Path | None) -> bytes | None:
    if file is None:
        return None if value is None else value.encode()
    if value is not None:
        raise Failure("--value and --value-file are given", "Give one of them.", code=ExitCode.USAGE)
    try:
        return file.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}", "Check the path.") from None


def _next(details: ScheduleDetails) -> str:
    times = details.next_times_ms
    return _local(times[0], details.summary.timezone) if times else "no time"


def _local(time_ms: int, timezone: str) -> str:
    """Format a time in the time zone of the schedule, or in UTC if this machine does not know the zone."""
    try:
        zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
        return datetime.fromtimestamp(time_ms / 1000, zone).isoformat(timespec="seconds")
    except (KeyError, ValueError, OSError, OverflowError):
        return show_time(time_ms)
