"""Declared pipelines of a cluster: definitions, the states that their supervisors report, and their events.

Definitions are in the compacted topic `__pipelines`, whose partitions the supervisors share as consumer group
members. States are in `__pipeline_status`, events in `__pipeline_logs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.clock import SystemClock
from penstock.internal_client.keyed_topic import KeyedTopic
from penstock.internal_client.routes import Routes

_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
DEFINITIONS = KeyedTopic("__pipelines", 8, _COMPACTED)
STATUSES = KeyedTopic("__pipeline_status", 1, _COMPACTED)
LOGS = KeyedTopic("__pipeline_logs", 1, {"retention.ms": str(7 * 86_400_000), "segment.bytes": "16777216"})
GROUP = "penstock-pipelines"
"""Consumer group of the supervisors. The member that is assigned the partition of a pipeline may own the pipeline."""
WAITING_FOR_SUPERVISOR = "waiting for a supervisor"
SILENT_MS = 60_000
"""Milliseconds after the last report at which a pipeline counts as having no supervisor."""
_LOG_TAIL = 20_000


@dataclass(frozen=True, slots=True)
class StoredPipeline:
    name: str
    id: str
    """Time of creation in hexadecimal, which distinguishes a pipeline from a deleted one of the same name."""
    document: Mapping[str, Any]
    is_paused: bool = False
    revision: int = 1
    run_requests: int = 0
    """Number of runs that users have requested."""
    changed_ms: int = 0

    def encode(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "id": self.id,
            "document": self.document,
            "paused": self.is_paused,
            "revision": self.revision,
            "run_requests": self.run_requests,
            "changed_ms": self.changed_ms,
        }

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> StoredPipeline:
        return cls(
            found["name"],
            found["id"],
            found["document"],
            found.get("paused", False),
            found.get("revision", 1),
            found.get("run_requests", 0),
            found.get("changed_ms", 0),
        )


class PipelineCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def all(self) -> list[StoredPipeline]:
        """Every pipeline, sorted by name."""
        found = await DEFINITIONS.documents(self._routes)
        return sorted(map(StoredPipeline.decode, found.values()), key=lambda each: each.name)

    async def get(self, name: str) -> StoredPipeline | None:
        found = (await DEFINITIONS.documents(self._routes)).get(name)
        return None if found is None else StoredPipeline.decode(found)

    async def put(self, document: Mapping[str, Any]) -> tuple[StoredPipeline, str]:
        """Store a definition that was checked. Returns the stored pipeline, and `created`, `changed` or
        `unchanged`.
        """
        name = document["name"]
        present = await self.get(name)
        if present is not None and present.document == document:
            return present, "unchanged"
        if present is None:
            made = StoredPipeline(name, f"{SystemClock().now_ms():x}", document)
            return await self._store(made), "created"
        return await self._store(
            replace(present, document=document, revision=present.revision + 1)
        ), "changed"

    async def set_paused(self, pipeline: StoredPipeline, is_paused: bool) -> StoredPipeline:
        return await self._store(replace(pipeline, is_paused=is_paused, revision=pipeline.revision + 1))

    async def request_run(self, pipeline: StoredPipeline) -> StoredPipeline:
        return await self._store(replace(pipeline, run_requests=pipeline.run_requests + 1))

    async def delete(self, name: str) -> None:
        await DEFINITIONS.put(self._routes, name, None)
        await STATUSES.put(self._routes, name, None)

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """Last reported state of each pipeline."""
        return await STATUSES.documents(self._routes)

    async def report(self, name: str, status: Mapping[str, Any]) -> None:
        await STATUSES.put(self._routes, name, status)

    async def log(self, name: str, event: Mapping[str, Any]) -> None:
        await LOGS.put(self._routes, name, event)

    async def events(self, name: str, most: int) -> list[dict[str, Any]]:
        """Last events of a pipeline, at most `most`, oldest first."""
        key = name.encode()
        found = [
            json.loads(record.value)
            async for record in LOGS.records(self._routes, _LOG_TAIL)
            if record.key == key and record.value is not None
        ]
        return found[-most:]

    async def _store(self, pipeline: StoredPipeline) -> StoredPipeline:
        stored = replace(pipeline, changed_ms=SystemClock().now_ms())
        await DEFINITIONS.put(self._routes, stored.name, stored.encode())
        return stored


def description(pipeline: StoredPipeline, status: Mapping[str, Any] | None) -> dict[str, Any]:
    """Pipeline as a JSON document: its definition, and the state that its owner reported."""
    known = status if status is not None and status.get("id") == pipeline.id else {}
    return {
        "name": pipeline.name,
        "id": pipeline.id,
        "state": "paused" if pipeline.is_paused else _state(known),
        "paused": pipeline.is_paused,
        "revision": pipeline.revision,
        "definition": dict(pipeline.document),
        "status": {name: value for name, value in known.items() if name not in ("id", "name")},
    }


def _state(known: Mapping[str, Any]) -> str:
    """State of a pipeline. A supervisor reports every few seconds until it releases the pipeline, so an old
    report means that there is no supervisor.
    """
    is_silent = SystemClock().now_ms() - int(known.get("at_ms", 0)) > SILENT_MS
    if not known or (is_silent and not known.get("released")):
        return WAITING_FOR_SUPERVISOR
    return str(known.get("state", WAITING_FOR_SUPERVISOR))
