"""The response to one request: its id, its headers, and whether it has begun."""

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
        """Note that the response begins, and return all of its headers."""
        self.status = status
        if not self.is_body_unread and [name for name, _ in headers] == _OF_JSON:
            return [*headers, *self.headers]
        given = {name for name, _ in headers}
        added = [pair for pair in self.headers if pair[0] not in given]
        if self.is_body_unread and b"connection" not in given:
            # The unread rest of the body would be taken for the next request.
            added.append((b"connection", b"close"))
        return [*headers, *added]
