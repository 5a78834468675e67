"""Target of a request: a path, or a URL whose host is that of the Host header (RFC 9112)."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit


def path_of(target: bytes, method: bytes, hosts: Sequence[bytes]) -> bytes | None:
    """Return path and query of a target; `/` for `OPTIONS *`; None if the target is invalid or of another host."""
    if target.startswith(b"/"):
        return target
    if target == b"*" and method == b"OPTIONS":
        return b"/"
    parts = urlsplit(target)
    host = hosts[0] if hosts else b""
    is_of_host = parts.netloc.lower() == host.lower() and b"@" not in parts.netloc
    if parts.scheme not in (b"http", b"https") or not is_of_host:
        return None
    return (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")
