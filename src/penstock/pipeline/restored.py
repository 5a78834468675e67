"""Detection of tables that another tool restored to an older version, so that committed rows are missing.

A restored table keeps the numbers of committed batches, so a writer would continue as if nothing were missing.
Therefore each commit contains the name of its writer, and the history of the table shows which of these commits the
newest version contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable

from penstock.pipeline.table_store import Store, storage_options

WRITER = "penstock.writer"
"""Metadata key of a commit whose value is the name of the writer."""
_LOOK_BACK = 100
"""Number of newest versions to search for the last commit of the writer."""


def restored_reason(table: DeltaTable, store: Store, writer: str) -> str | None:
    """Reason why a writer must not continue; None if the table contains all of its commits."""
    lost = lost_version(table, store, writer)
    if lost is None:
        return None
    return (
        f"the table at {store.uri} was restored to an older version: rows that version {lost} added are missing. "
        f"Restore version {lost} or a newer one"
    )


def lost_version(table: DeltaTable, store: Store, writer: str) -> int | None:
    """Newest version that this writer committed and that the table no longer contains; None if nothing is lost."""
    entries = _history(table, writer)
    committed = max((version for version, each in entries.items() if each.get(WRITER) == writer), default=-1)
    origin = table.version()
    while origin > committed and origin in entries:
        entry = entries[origin]
        origin = _restored_to(store, entry) if entry.get("operation") == "RESTORE" else origin - 1
    return committed if origin < committed else None


def _history(table: DeltaTable, writer: str) -> dict[int, dict[str, Any]]:
    """Newest commits by version. If the newest commit is of the writer, as usual, only this one is read."""
    newest = table.history(1)
    found = newest if newest and newest[0].get(WRITER) == writer else table.history(_LOOK_BACK)
    return {each["version"]: each for each in found}


def _restored_to(store: Store, entry: Mapping[str, Any]) -> int:
    """Version that a commit of the operation RESTORE restored."""
    given = entry.get("operationParameters", {})
    if given.get("version") is not None:
        return int(given["version"])
    time_ms = int(given.get("datetime") or given.get("timestamp") or 0)
    older = DeltaTable(store.uri, storage_options=storage_options(store))
    older.load_as_version(datetime.fromtimestamp(time_ms / 1000, UTC))
    return older.version()
