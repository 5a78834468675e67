"""Schedules and their messages in a definitions document. A schedule is left out if the user may not see its
message.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import ApplyStep, DefinitionSection, Entry, Right
from penstock.internal_client.schedule_documents import details_document
from penstock.internal_client.schedules import DEFAULT_CATCH_UP, DEFAULT_TIMEZONE, NewSchedule

_FIELDS = ("name", "cron", "timezone", "topic", "catch_up", "paused")
_MESSAGE = ("key", "key_base64", "value", "value_base64", "headers")


class ScheduleSection(DefinitionSection):
    name = "schedules"
    noun = "schedule"
    defaults: ClassVar[Mapping[str, Any]] = {
        "timezone": DEFAULT_TIMEZONE,
        "catch_up": DEFAULT_CATCH_UP,
        "paused": False,
        "headers": [],
    }

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        calls = reading.cluster.schedules
        found: list[Entry] = []
        for summary in await calls.all():
            details = await calls.describe(summary.name)
            if details.message is not None:
                shown = details_document(details)
                message = {name: shown[name] for name in _MESSAGE if shown.get(name) not in (None, [])}
                found.append({**{name: shown[name] for name in _FIELDS}, **message})
        return found

    def problem(self, entry: Entry) -> str:
        for place in (entry, *entry.get("headers", ())):
            for name in ("key", "value"):
                if name in place and f"{name}_base64" in place:
                    return f"give {name} or {name}_base64, not both"
            try:
                for name in ("key", "value"):
                    _bytes(place, name)
            except (Error, ValueError):
                return "the base64 of its message cannot be read, padding included"
        return ""

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        full = {**self.defaults, **entry}
        headers = tuple((each["name"], _bytes(each, "value")) for each in full["headers"])
        await cluster.schedules.create(
            NewSchedule(
                full["name"],
                full["cron"],
                full["topic"],
                full["timezone"],
                _bytes(full, "key"),
                _bytes(full, "value"),
                headers,
                full["catch_up"],
            )
        )
        if full["paused"]:
            await cluster.schedules.pause(full["name"])

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        """Pause or resume a schedule. Any other change replaces the schedule."""
        if step.changes.keys() == {"paused"}:
            paused = step.changes["paused"].new
            await (cluster.schedules.pause if paused else cluster.schedules.resume)(step.name)
            return
        present = await cluster.schedules.describe(step.name)
        await cluster.schedules.delete(step.name)
        await self.create(cluster, {"paused": present.summary.paused, **step.entry})

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.schedules.delete(entry["name"])

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        yield "WRITE", "TOPIC", step.entry["topic"]


def _bytes(place: Entry, name: str) -> bytes | None:
    encoded: Any = place.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(encoded, validate=True)
    text = place.get(name)
    return None if text is None else str(text).encode()
