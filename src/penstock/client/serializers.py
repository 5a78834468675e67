"""Serializers and deserializers for keys and values, by name or as functions.

None is never serialized: it is a missing key, or a tombstone in a compacted topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from penstock.client.errors import InvalidSetting, NotSerializable

T = TypeVar("T")
Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]
Format = Literal["bytes", "str", "json"]


def _plain(value: Any) -> bytes:
    """Default serializer: bytes unchanged, text as UTF-8."""
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    return _bytes(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is neither bytes nor str")


def _str(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{type(value).__name__} is not str")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _as_they_are(stored: bytes) -> bytes:
    return stored


_SERIALIZERS: dict[str, Serializer] = {"bytes": _bytes, "str": _str, "json": _json}
_DESERIALIZERS: dict[str, Deserializer] = {"bytes": _as_they_are, "str": bytes.decode, "json": json.loads}


def serializer(chosen: Format | Serializer | None) -> Serializer:
    if chosen is None:
        return _plain
    return chosen if callable(chosen) else _named(_SERIALIZERS, chosen)


def deserializer(chosen: Format | Deserializer | None) -> Deserializer:
    if chosen is None:
        return _as_they_are
    return chosen if callable(chosen) else _named(_DESERIALIZERS, chosen)


def serialize(chosen: Serializer, value: Any, role: str) -> bytes | None:
    """Return the bytes of a key or value; None stays None."""
    if value is None:
        return None
    try:
        return chosen(value)
    except (TypeError, ValueError) as error:
        raise NotSerializable(
            f"the {role} cannot be sent: {error}; convert it, or choose {role}_serializer='json' or a function"
        ) from error


def _named(known: dict[str, T], name: str) -> T:
    try:
        return known[name]
    except KeyError:
        raise InvalidSetting(
            f"{name!r} is not a format; choose {', '.join(known)}, or give a function"
        ) from None
