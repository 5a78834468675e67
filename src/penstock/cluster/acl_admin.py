"""Administration of access control lists and quotas on any broker; the `ChangeMaker` writes the changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from penstock.cluster import acls
from penstock.cluster.acl_nodes import encode_acls
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.quotas import MAX_CHANGES_PER_REQUEST, QuotaChange, alter_quotas
from penstock.cluster.topic_writes import BYTES_PER_PARTITION, batches
from penstock.errors import BrokerError, ErrorCode
from penstock.security.acl import AccessControlEntry, AclBinding, AclFilter, ResourcePattern

V = TypeVar("V")

Change = tuple[ResourcePattern, frozenset[AccessControlEntry]]


class AclAdministration:
    def __init__(self, metadata: ClusterMetadata, changes: ChangeMaker) -> None:
        self._metadata = metadata
        self._changes = changes

    async def create(self, bindings: Sequence[AclBinding]) -> dict[AclBinding, BrokerError | None]:
        """Create entries. Returns None or the error for each; an entry that exists already is a success."""
        await self._changes.confirm()
        self._check_count(len(bindings))
        results: dict[AclBinding, BrokerError | None] = {}
        for binding in bindings:
            try:
                acls.check_binding(binding)
                results[binding] = None
            except BrokerError as error:
                results[binding] = error
        valid = acls.by_resource(binding for binding, error in results.items() if error is None)
        changes = [(resource, frozenset(entries)) for resource, entries in valid.items()]
        outcomes = await self._change(changes, acls.create_acls)
        for (resource, entries), outcome in zip(changes, outcomes, strict=True):
            results.update((AclBinding(resource, entry), outcome) for entry in entries)
        return results

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding] | BrokerError]:
        """Delete the entries that match. Returns the deleted entries, or the error, for each filter."""
        await self._changes.confirm()
        image = self._metadata.image
        found = [acls.matching(image, each) for each in filters]
        doomed: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for matches in found:
            for resource, entries in matches.items():
                doomed.setdefault(resource, set()).update(entries)
        changes = [(resource, frozenset(entries)) for resource, entries in doomed.items()]
        outcomes = await self._change(changes, acls.delete_acls)
        by_resource = {resource: each for (resource, _), each in zip(changes, outcomes, strict=True)}
        return [_deleted(matches, by_resource) for matches in found]

    async def alter_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> list[BrokerError | None]:
        """Alter quotas of entities. Returns None or the error for each change, in order."""
        if len(changes) > MAX_CHANGES_PER_REQUEST:
            raise BrokerError(
                ErrorCode.policy_violation, f"a request has at most {MAX_CHANGES_PER_REQUEST} entities"
            )
        if validate_only:
            return alter_quotas(self._metadata.image, changes).result
        await self._changes.confirm()
        return await self._changes.make(lambda image: alter_quotas(image, changes))

    async def _change(
        self,
        changes: Sequence[Change],
        decide: Callable[[ClusterImage, Sequence[Change]], MetadataChange[list[V]]],
    ) -> list[V | BrokerError]:
        """Apply the changes in as many writes as their size requires. Returns the result or the error of each
        change.
        """
        results: list[V | BrokerError] = []
        for batch in batches(changes, [self._size(change) for change in changes]):
            try:
                decided = await self._changes.make(partial(_swapped, decide, batch))
            except BrokerError as error:
                return results + [error] * (len(changes) - len(results))
            results += decided
        return results

    def _size(self, change: Change) -> int:
        """Upper bound of the node's size after the change, in units of `BYTES_PER_PARTITION`."""
        resource, entries = change
        present = self._metadata.image.acls.get(resource, acls.NO_ACLS).entries
        return 1 + len(encode_acls(present | entries)) // BYTES_PER_PARTITION

    def _check_count(self, more: int) -> None:
        if more > acls.MAX_ACLS_PER_REQUEST:
            raise BrokerError(
                ErrorCode.policy_violation,
                f"{more} rules in one request are more than {acls.MAX_ACLS_PER_REQUEST}; send several requests",
            )
        present = sum(len(each.entries) for each in self._metadata.image.acls.values())
        if present + more > acls.MAX_ACLS:
            raise BrokerError(ErrorCode.policy_violation, f"a cluster has at most {acls.MAX_ACLS} rules")


def _swapped(
    decide: Callable[[ClusterImage, Sequence[Change]], MetadataChange[list[V]]],
    batch: Sequence[Change],
    image: ClusterImage,
) -> MetadataChange[list[V]]:
    return decide(image, batch)


def _deleted(
    matches: Mapping[ResourcePattern, Sequence[AccessControlEntry]],
    outcomes: Mapping[ResourcePattern, frozenset[AccessControlEntry] | BrokerError],
) -> list[AclBinding] | BrokerError:
    """Deleted entries among the matches of one filter, or the error if a write failed."""
    deleted: list[AclBinding] = []
    for resource, entries in matches.items():
        outcome = outcomes[resource]
        if isinstance(outcome, BrokerError):
            return outcome
        deleted += [AclBinding(resource, entry) for entry in sorted(entries) if entry in outcome]
    return deleted
