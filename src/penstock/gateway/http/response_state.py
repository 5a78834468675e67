"""State of the response to one request: its id, its common headers and, once it has begun, its status."""

from __future__ import annotations

from penstock.gateway.http.exchange import RawHeaders

_SAFETY = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


_OF_JSON = [b"content-type", b"content-length"]


class ResponseState:
    __slots__ = ("body_bytes", "endpoint", "headers", "is_body_unread", "request_id", "status")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.status = 0
        self.endpoint = "none"
        self.is_body_unread = False
        self.body_bytes = 0
        self.headers: list[tuple[bytes, bytes]] = [*_SAFETY, (b"x-request-id", request_id.encode())]

    def begin(self, status: int, headers: RawHeaders) -> RawHeaders:
        """Record that the response begins, and return its headers together with the common ones."""
        self.status = status
        if not self.is_body_unread and [name for name, _ in headers] == _OF_JSON:
            return [*headers, *self.headers]
        given = {name for name, _ in headers}
        added = [pair for pair in self.headers if pair[0] not in given]
        if self.is_body_unread and b"connection" not in given:
            # The rest of the body, which was not read, would be parsed as the next request.
            added.append((b"connection", b"close"))
        return [*headers, *added]
