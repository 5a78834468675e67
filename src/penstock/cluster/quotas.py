"""Rules for AlterClientQuotas: which quotas are valid, and what a change writes. Pure.

The node of an entity stays when the entity loses its last quota, for the same reason as that of an empty
access control list (`acls.py`).
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.cluster import znodes
from penstock.cluster.change_list import Scope
from penstock.cluster.coordination import Create, Operation, Set
from penstock.cluster.image import ClusterImage, StoredQuotas
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.quota_nodes import encode_quotas, node_name
from penstock.cluster.topic_writes import Writes
from penstock.errors import BrokerError, ErrorCode
from penstock.security.quota import Default, QuotaEntity, QuotaKey

MAX_QUOTAS = 100_000
MAX_CHANGES_PER_REQUEST = 1_000
MAX_NAME_CHARACTERS = 1_000
NO_QUOTAS = StoredQuotas()
_OF_CLIENTS = frozenset(QuotaKey) - {QuotaKey.CONNECTION_CREATION_RATE}
_OF_ADDRESSES = frozenset({QuotaKey.CONNECTION_CREATION_RATE})


@dataclass(frozen=True, slots=True)
class QuotaChange:
    entity: QuotaEntity
    values: Mapping[str, float | None] = field(default_factory=dict)
    """New quotas by key; None removes a quota."""


def alter_quotas(
    image: ClusterImage, changes: Sequence[QuotaChange]
) -> MetadataChange[list[BrokerError | None]]:
    """Alter the quotas of entities. The result has None or the error for each change, in order."""
    results: list[BrokerError | None] = []
    operations: list[Operation] = []
    names: set[str] = set()
    for change in changes:
        try:
            operation = _alter(image, change)
        except BrokerError as error:
            results.append(error)
            continue
        if operation is not None:
            operations.append(operation)
            names.add(node_name(change.entity))
        results.append(None)
    if len(image.quotas) + len(names) > MAX_QUOTAS:
        raise BrokerError(
            ErrorCode.policy_violation, f"a cluster has quotas of at most {MAX_QUOTAS} entities"
        )
    return MetadataChange(results, Writes(tuple(operations)), Scope(quotas=frozenset(names)))


def _alter(image: ClusterImage, change: QuotaChange) -> Operation | None:
    entity = change.entity
    check_entity(entity)
    if isinstance(entity.ip, str) and any(value is not None for value in change.values.values()):
        _check_address(entity.ip)
    before = image.quotas.get(entity, NO_QUOTAS)
    after = dict(before.values)
    for name, value in change.values.items():
        key = _key(entity, name)
        if value is None:
            after.pop(key, None)
        else:
            after[key] = _checked(name, value)
    if after == before.values:
        return None
    path, data = znodes.quotas_path(node_name(entity)), encode_quotas(after)
    return Create(path, data) if before.version < 0 else Set(path, data, before.version)


def check_entity(entity: QuotaEntity) -> None:
    """Raise BrokerError INVALID_REQUEST for an entity that cannot have quotas."""
    names = (entity.user, entity.client_id, entity.ip)
    if names == (None, None, None):
        raise _invalid("the entity is empty; give a user, a client id or an address")
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise _invalid("an address cannot be combined with a user or a client id")
    for name in names:
        if isinstance(name, Default) or name is None:
            continue
        if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
            raise _invalid(
                f"{name[:80]!r} is empty, has control characters, or more than {MAX_NAME_CHARACTERS} characters"
            )


def _check_address(text: str) -> None:
    """Raise BrokerError INVALID_REQUEST if the text is not the normal form of an IP address: no client would
    match it.
    """
    try:
        address = str(ipaddress.ip_address(text))
    except ValueError:
        raise _invalid(f"{text[:80]!r} is not an IP address") from None
    if address != text:
        raise _invalid(f"{text[:80]!r}: write the address as {address}")


def _key(entity: QuotaEntity, name: str) -> QuotaKey:
    keys = _OF_CLIENTS if entity.ip is None else _OF_ADDRESSES
    if name not in keys:
        raise _invalid(f"Invalid configuration key {name[:80]!r}; give {', '.join(sorted(keys))}")
    return QuotaKey(name)


def _checked(name: str, value: float) -> float:
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{name}={value}: a quota is a number greater than 0; remove it to lift the limit")
    return value


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, text)
