"""Encoding of quotas as nodes of the coordination store: one node for each entity.

The name of a node has a part for each of user, client id and address that the entity has, joined by commas. A
part is a letter (`u`, `c` or `i`), a dash and the quoted name, or the letter alone for the default.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster import znodes
from penstock.errors import StorageError
from penstock.security.quota import DEFAULT, Default, EntityName, QuotaEntity, QuotaKey

_LETTERS = ("u", "c", "i")


def node_name(entity: QuotaEntity) -> str:
    names = zip(_LETTERS, (entity.user, entity.client_id, entity.ip), strict=True)
    return ",".join(_part(letter, name) for letter, name in names if name is not None)


def _part(letter: str, name: EntityName) -> str:
    return letter if isinstance(name, Default) else f"{letter}-{znodes.quoted(name)}"


def entity_of(name: str) -> QuotaEntity:
    """Entity of a node. Raises StorageError if this version does not know its form."""
    found: dict[str, EntityName] = {}
    for part in name.split(","):
        letter, separator, quoted = part.partition("-")
        if letter not in _LETTERS:
            raise StorageError(f"the name of a quota in the coordination store is not valid: {name[:200]!r}")
        found[letter] = znodes.unquoted(quoted) if separator else DEFAULT
    return QuotaEntity(found.get("u"), found.get("c"), found.get("i"))


def encode_quotas(values: Mapping[QuotaKey, float]) -> bytes:
    return znodes.encode(znodes.QuotasNode({str(key): value for key, value in values.items()}))


def decode_quotas(data: bytes) -> dict[QuotaKey, float]:
    known = {str(key): key for key in QuotaKey}
    values = znodes.decode(data, znodes.QuotasNode).values
    return {known[name]: value for name, value in values.items() if name in known}
