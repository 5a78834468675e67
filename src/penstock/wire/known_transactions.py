"""KnownTransactions: a partition leader asks a broker which open transactions of the partition its
coordinator knows.

    request   count 4, each: producer id 8 | topic (length 2) | partition 4
    response  error code 2 | shards, count 4, each: partition of `__transaction_state` 4 | coordinator epoch 4
              known, count 4, each: its index in the request 4

A transaction that is not listed is unknown to the shards in the response. Other shards may know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.model import LeaderEpoch, ProducerId, TopicPartition
from penstock.wire import primitives
from penstock.wire.apis import KNOWN_TRANSACTIONS
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

_QUESTION_BYTES: Final = 14
_SHARD_BYTES: Final = 8
_PLACE_BYTES: Final = 4


class OpenTransaction(NamedTuple):
    """A transaction that is open in one partition."""

    producer_id: ProducerId
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class KnownTransactions:
    error_code: int = 0
    shards: dict[int, LeaderEpoch] = field(default_factory=dict)
    """Shards that were searched, with the leader epoch of each."""
    known: tuple[int, ...] = ()
    """Indexes in the request of the transactions that are known."""


def encode_known_transactions_request(
    correlation_id: int, client_id: str, asked: Sequence[OpenTransaction]
) -> bytes:
    parts = [
        encode_request_header(RequestHeader(KNOWN_TRANSACTIONS, 0, correlation_id, client_id)),
        primitives.array_length(len(asked)),
    ]
    for producer_id, partition in asked:
        parts += (primitives.INT64(producer_id), primitives.string(partition.topic))
        parts.append(primitives.INT32(partition.partition))
    return primitives.frame(*parts)


def decode_known_transactions_request(frame: memoryview, position: int) -> tuple[OpenTransaction, ...]:
    reader = Reader(frame, position)
    try:
        count = reader.array_length(_QUESTION_BYTES)
        return tuple(
            OpenTransaction(ProducerId(reader.int64()), TopicPartition(reader.string(), reader.int32()))
            for _ in range(count)
        )
    except MALFORMED as error:
        raise ProtocolError(f"malformed KnownTransactions request: {error}") from None


def encode_known_transactions_response(correlation_id: int, answer: KnownTransactions) -> bytes:
    parts = [
        encode_response_header(KNOWN_TRANSACTIONS, 0, correlation_id),
        primitives.INT16(answer.error_code),
        primitives.array_length(len(answer.shards)),
    ]
    for index, epoch in answer.shards.items():
        parts += (primitives.INT32(index), primitives.INT32(epoch))
    parts.append(primitives.array_length(len(answer.known)))
    parts += map(primitives.INT32, answer.known)
    return primitives.frame(*parts)


def decode_known_transactions_response(frame: memoryview) -> KnownTransactions:
    _, position = decode_response_header(KNOWN_TRANSACTIONS, 0, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        error_code = reader.int16()
        shards = {
            reader.int32(): LeaderEpoch(reader.int32()) for _ in range(reader.array_length(_SHARD_BYTES))
        }
        known = tuple(reader.int32() for _ in range(reader.array_length(_PLACE_BYTES)))
    except MALFORMED as error:
        raise ProtocolError(f"malformed KnownTransactions response: {error}") from None
    return KnownTransactions(error_code, shards, known)
