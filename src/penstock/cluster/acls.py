"""Rules for CreateAcls and DeleteAcls: which entries are valid, and what a change writes. Pure.

Creating an entry that exists, and deleting with a filter that matches nothing, succeeds without a write. The
node of a list stays when the list becomes empty. A new node would begin with version 0 again, so a broker
with an old image could overwrite rules that it has never seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.cluster import znodes
from penstock.cluster.acl_nodes import encode_acls, node_name
from penstock.cluster.change_list import Scope
from penstock.cluster.coordination import Create, Operation, Set
from penstock.cluster.image import ClusterImage, StoredAcls
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.topic_writes import MAX_NODE_BYTES, Writes
from penstock.errors import BrokerError, ErrorCode
from penstock.security.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    ResourcePattern,
    ResourceType,
)

MAX_ACLS = 1_000_000
MAX_ACLS_PER_REQUEST = 10_000
MAX_NAME_CHARACTERS = 1_000
NO_ACLS = StoredAcls()

Entries = Mapping[ResourcePattern, frozenset[AccessControlEntry]]


def check_binding(binding: AclBinding) -> None:
    """Raise BrokerError INVALID_REQUEST for an entry that cannot be stored."""
    resource, entry = binding.resource, binding.entry
    if not resource.name:
        raise _invalid("Resource name should not be empty")
    if resource.kind is ResourceType.CLUSTER and resource.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if resource.kind is ResourceType.CLUSTER and resource.pattern is PatternType.PREFIXED:
        raise _invalid("the CLUSTER resource has no prefixes; use the pattern type LITERAL")
    kind, _, name = entry.principal.partition(":")
    if not kind or not name:
        raise _invalid(f"{entry.principal[:80]!r} is not a principal; give User:NAME")
    if not entry.host:
        raise _invalid("the host is empty; give an address or *")
    for text in (resource.name, entry.principal, entry.host):
        if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
            raise _invalid(
                f"{text[:80]!r} has control characters, or more than {MAX_NAME_CHARACTERS} characters"
            )


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, text)


def by_resource(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, set[AccessControlEntry]]:
    found: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for binding in bindings:
        found.setdefault(binding.resource, set()).add(binding.entry)
    return found


def create_acls(
    image: ClusterImage, wanted: Sequence[tuple[ResourcePattern, frozenset[AccessControlEntry]]]
) -> MetadataChange[list[BrokerError | None]]:
    """Add entries. The result has None or the error for each resource pattern, in order."""
    results: list[BrokerError | None] = []
    after: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
    for resource, entries in wanted:
        changed = image.acls.get(resource, NO_ACLS).entries | entries
        if len(encode_acls(changed)) > MAX_NODE_BYTES:
            text = f"{resource} would have {len(changed)} rules, too many for one resource; use User:* or a prefix"
            results.append(BrokerError(ErrorCode.policy_violation, text))
            continue
        after[resource] = changed
        results.append(None)
    return MetadataChange(results, *_writes(image, after))


def matching(image: ClusterImage, wanted: AclFilter) -> dict[ResourcePattern, list[AccessControlEntry]]:
    """Entries that a filter matches, by resource pattern."""
    if wanted.name is not None and wanted.kind is not None and wanted.pattern is not None:
        resource = ResourcePattern(wanted.kind, wanted.name, wanted.pattern)
        candidates = {resource: image.acls.get(resource, NO_ACLS)}
    else:
        candidates = {each: acls for each, acls in image.acls.items() if wanted.matches_resource(each)}
    found = {resource: wanted.among(acls.entries) for resource, acls in candidates.items()}
    return {resource: entries for resource, entries in found.items() if entries}


def delete_acls(
    image: ClusterImage, doomed: Sequence[tuple[ResourcePattern, frozenset[AccessControlEntry]]]
) -> MetadataChange[list[frozenset[AccessControlEntry]]]:
    """Remove entries. The result has the removed entries of each resource pattern, in order."""
    present = {resource: image.acls.get(resource, NO_ACLS).entries for resource, _ in doomed}
    removed = [present[resource] & entries for resource, entries in doomed]
    after = {resource: present[resource] - entries for resource, entries in doomed}
    return MetadataChange(removed, *_writes(image, after))


def _writes(image: ClusterImage, after: Entries) -> tuple[Writes, Scope]:
    operations: list[Operation] = []
    names: set[str] = set()
    for resource, entries in after.items():
        before = image.acls.get(resource, NO_ACLS)
        if before.entries != entries:
            name = node_name(resource)
            operations.append(_write(znodes.acls_path(name), before, entries))
            names.add(name)
    return Writes(tuple(operations)), Scope(acls=frozenset(names))


def _write(path: str, before: StoredAcls, entries: frozenset[AccessControlEntry]) -> Operation:
    data = encode_acls(entries)
    return Create(path, data) if before.version < 0 else Set(path, data, before.version)
