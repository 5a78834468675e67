"""Host and port of a listener or a client's target."""

from __future__ import annotations

from penstock.model import Address as Address

PROTOCOL = "PLAINTEXT://"


def parse_address(text: str) -> Address:
    """Parse `host:port` or `[v6]:port`, with or without Kafka's `PLAINTEXT://`. Raises ValueError."""
    host, separator, port = text.removeprefix(PROTOCOL).rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(text)
    if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(text)
    if any(character.isspace() or character in "/,@" for character in host):
        raise ValueError(text)
    return Address(host, int(port))
