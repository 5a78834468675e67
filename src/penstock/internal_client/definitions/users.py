"""Users in a definitions document, without their secrets.

A user created from a document has credentials that match no password, until a password is set.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import (
    CLUSTER_RESOURCE,
    ApplyStep,
    DefinitionSection,
    Entry,
    Right,
)
from penstock.security.scram import MIN_ITERATIONS, SALT_BYTES, ScramMechanism

_KEY_BYTES = 64


class UserSection(DefinitionSection):
    name = "users"
    noun = "user"
    defaults: ClassVar[Mapping[str, Any]] = {"disabled": False}
    fixed = frozenset({"mechanisms"})
    creation_note = " without a password; `penstock user password` sets one"
    deletion_note = " with its access tokens"

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        return [
            {"name": each.name, "disabled": each.is_disabled, "mechanisms": sorted(each.mechanisms)}
            for each in sorted(await reading.cluster.users.describe(), key=lambda each: each.name)
        ]

    def normal(self, entry: Entry) -> Entry:
        return {**entry, "mechanisms": sorted(entry["mechanisms"])} if "mechanisms" in entry else entry

    def way_out(self, field_name: str) -> str:
        return "; setting a new password creates credentials for all mechanisms"

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        wanted = entry.get("mechanisms") or [str(each) for each in ScramMechanism]
        await cluster.users.put_credentials(
            [
                {
                    "name": entry["name"],
                    "mechanism": each.code,
                    "iterations": MIN_ITERATIONS,
                    "salt": ssl.RAND_bytes(SALT_BYTES),
                    "salted_password": ssl.RAND_bytes(_KEY_BYTES),
                }
                for each in ScramMechanism
                if str(each) in wanted
            ]
        )
        if entry.get("disabled"):
            await cluster.users.set_disabled(entry["name"], True)

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        await cluster.users.set_disabled(step.name, bool(step.changes["disabled"].new))

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        [user] = await cluster.users.describe([entry["name"]])
        await cluster.users.delete(user)

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        yield "ALTER", *CLUSTER_RESOURCE
