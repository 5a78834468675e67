"""The definitions of a cluster as one document: `Admin().definitions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.client.errors import InvalidSetting
from penstock.client.internal_calls import InternalCalls
from penstock.client.internal_connection import InternalConnection

if TYPE_CHECKING:
    from penstock.internal_client.client import InternalClient


class Definitions:
    def __init__(self, connection: InternalConnection, timeout_s: float) -> None:
        self._calls = InternalCalls(connection, timeout_s, {})

    def export(self) -> dict[str, Any]:
        """Return topics, settings, users, rules, quotas, queues and all other definitions, without secrets."""
        from penstock.internal_client.definitions.planning import document, export
        from penstock.internal_client.definitions.reading import DefinitionReading

        async def work(client: InternalClient) -> dict[str, Any]:
            return document(await export(DefinitionReading(client)))

        return self._calls.run(work)

    def apply(
        self, document: Mapping[str, Any], *, dry_run: bool = False, prune: bool = False
    ) -> list[dict[str, Any]]:
        """Create and change all entries that differ from `document`, which has the format of `export`; return the
        steps.

        With `dry_run` nothing is changed, and the step of a new topic that a broker would refuse has a `problem`. With
        `prune`, entries that are missing in their section of the document are deleted. Raises InvalidSetting with the
        name of the entry for a document that cannot be applied.
        """
        from penstock.internal_client.definitions.planning import (
            InvalidDefinition,
            carry_out,
            check,
            export,
            plan,
            read_document,
        )
        from penstock.internal_client.definitions.reading import DefinitionReading

        try:
            wanted = read_document(document)
        except InvalidDefinition as error:
            raise InvalidSetting(f"{error.pointer}: {error}") from None
        except (LookupError, TypeError, AttributeError) as error:
            raise InvalidSetting(f"not a document of definitions: {error!r}") from None

        async def work(client: InternalClient) -> list[dict[str, Any]]:
            steps = plan(await export(DefinitionReading(client)), wanted, prune=prune)
            if dry_run:
                steps = await check(steps, client)
            else:
                await carry_out(steps, client)
            return [step.document() for step in steps]

        return self._calls.run(work)
