"""Messages between the store of a machine and its clients, in MessagePack.

client                          server
Open(session timeout)      ->
                           <-   Opened
Read, List, Write (id)     ->
                           <-   Nodes, Names, Results, Refused (id), in the order of the requests
Watch, Unwatch (path)      ->
                           <-   Changed (path), after every change until Unwatch
Ping                       ->                                          keeps the session alive
End (id)                   ->                                          ends the session
                           <-   Results (id), after the ephemeral nodes were removed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from struct import Struct
from typing import Any

import msgspec

from penstock.cluster.coordination import (
    BadVersion,
    Check,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    StoreError,
)
from penstock.errors import PenstockError, ProtocolError, StorageError, UnknownOutcome

PORT = 1
"""Port of the server on networks with ports; a Unix socket has none."""
MAX_FRAME_BYTES = 1 << 30

_OPERATIONS: tuple[type[Operation], ...] = (Create, Set, Delete, Check)
_ERRORS: tuple[type[PenstockError], ...] = (
    NoNode,
    NodeExists,
    BadVersion,
    NotEmpty,
    EphemeralParent,
    UnknownOutcome,
    StorageError,
)

PackedNode = tuple[bytes, int, int, bool]


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class Open(_Message, frozen=True):
    session_timeout_ms: int


class Read(_Message, frozen=True):
    id: int
    paths: list[str]


class List(_Message, frozen=True):
    id: int
    path: str


class Write(_Message, frozen=True):
    id: int
    operations: list[tuple[Any, ...]]
    """Operations, each as the number of its kind followed by its fields."""


class Watch(_Message, frozen=True):
    path: str


class Ping(_Message, frozen=True):
    pass


class End(_Message, frozen=True):
    id: int


class Opened(_Message, frozen=True):
    pass


class Nodes(_Message, frozen=True):
    id: int
    nodes: list[PackedNode | None]


class Names(_Message, frozen=True):
    id: int
    names: list[str]


class Results(_Message, frozen=True):
    id: int
    results: list[str | PackedNode | None]


class Refused(_Message, frozen=True):
    id: int
    kind: int
    text: str
    """Path of a StoreError, or the message of another error."""


class Changed(_Message, frozen=True):
    path: str


Call = Read | List | Write | End
"""Request with a response."""
Request = Open | Call | Watch | Ping
Answer = Nodes | Names | Results | Refused
"""Response to a request."""
Response = Opened | Answer | Changed

_SIZE = Struct(">i")
_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(Request)
_response_decoder = msgspec.msgpack.Decoder(Response)


def encode(message: Request | Response) -> bytes:
    """Encode a message as a frame, with its size."""
    content = _encoder.encode(message)
    return _SIZE.pack(len(content)) + content


def decode_request(message: memoryview) -> Request:
    try:
        request: Request = _request_decoder.decode(message)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not a request to the store: {error}") from error
    return request


def decode_response(message: memoryview) -> Response:
    try:
        response: Response = _response_decoder.decode(message)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not a response of the store: {error}") from error
    return response


def pack_operations(operations: Sequence[Operation]) -> list[tuple[Any, ...]]:
    return [(_OPERATIONS.index(type(operation)), *astuple(operation)) for operation in operations]


def unpack_operations(packed: Sequence[tuple[Any, ...]]) -> list[Operation]:
    return [_OPERATIONS[kind](*fields) for kind, *fields in packed]


def pack_node(node: Node) -> PackedNode:
    return node.data, node.version, node.created, node.ephemeral


def pack_nodes(nodes: Sequence[Node | None]) -> list[PackedNode | None]:
    return [None if node is None else pack_node(node) for node in nodes]


def pack_results(
    results: Sequence[str | Node | None],
) -> list[str | PackedNode | None]:
    return [pack_node(result) if isinstance(result, Node) else result for result in results]


def unpack_results(
    results: Sequence[str | PackedNode | None],
) -> list[str | Node | None]:
    return [Node(*result) if isinstance(result, tuple) else result for result in results]


def refusal(request_id: int, error: PenstockError) -> Refused:
    kind = next((kind for kind in _ERRORS if isinstance(error, kind)), StorageError)
    text = error.path if isinstance(error, StoreError) else str(error)
    return Refused(request_id, _ERRORS.index(kind), text)


def error_of(refused: Refused) -> PenstockError:
    return _ERRORS[refused.kind](refused.text)
