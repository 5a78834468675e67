"""Refusals of requests by the connection itself: the status, the reason and the bytes of the response."""

from __future__ import annotations

import json
from http import HTTPStatus

import httptools

_RETRIABLE = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class RefusedRequest(Exception):
    """The request was refused: it gets a response with this status, and the connection is closed."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def refusal_of(error: Exception, data: bytes) -> RefusedRequest:
    """Return the refusal for an error that the parser raised for the received bytes `data`."""
    if isinstance(error, RefusedRequest):
        return error
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        is_method = data.split(b" ", 1)[0].isalpha()
        return RefusedRequest(501 if is_method else 400, "this is not a request of HTTP/1.1")
    return RefusedRequest(400, f"this is not a request of HTTP/1.1: {_named(error)}")


def refusal_response(status: int, detail: str) -> bytes:
    """Return the bytes of a response with a problem document and `Connection: close`."""
    title = HTTPStatus(status).phrase
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    body = json.dumps(problem | {"retriable": status in _RETRIABLE}).encode()
    later = "retry-after: 1\r\n" if status in _LATER else ""
    head = (
        f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\n{later}"
        f"content-length: {len(body)}\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def _named(error: Exception) -> str:
    text = str(error.args[0]) if error.args else ""
    return text[:100] if text.isprintable() else "it cannot be read"
