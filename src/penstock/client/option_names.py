"""Check of option names before a client is created."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client.errors import UnknownOption

_OTHER_NAMES = {
    "bootstrap_servers": "bootstrap",
    "group_id": "group",
    "auto_offset_reset": "start",
    "client_rack": "config",
    "group_instance_id": "instance_id",
    "batch_size": "batch_bytes",
    "compression_type": "compression",
}
"""Option names of other Kafka clients, and our name for the same option."""


def check_names(options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise UnknownOption for the first unknown name; the error suggests the most similar option."""
    names = list(known)
    for name in options:
        if name not in names:
            raise UnknownOption(f"there is no option {name!r}; {_advice(name, names)}")


def _advice(name: str, names: list[str]) -> str:
    plain = name.replace(".", "_").lower()
    other = _OTHER_NAMES.get(plain)
    likely = [other] if other in names else difflib.get_close_matches(plain, names, n=1)
    if likely and likely != ["config"]:
        return f"did you mean {likely[0]!r}?"
    if "config" in names:
        return f"librdkafka's settings go into config={{{plain.replace('_', '.')!r}: ...}}"
    return f"the options are {', '.join(names)}"
