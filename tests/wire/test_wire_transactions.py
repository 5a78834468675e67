"""The codecs of EndTxn and AddPartitionsToTxn by hand match the schema."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, ProtocolError
from penstock.model import TopicPartition
from penstock.wire.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    decode_add_partitions,
    encode_add_partitions_response,
)
from penstock.wire.end_txn import END_TXN, decode_end_txn, encode_end_txn_response
from penstock.wire.headers import RequestHeader
from penstock.wire.messages import decode_request, encode_request, encode_response_frame

IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.just("ü" * 150)
PRODUCER_IDS = st.integers(-(2**63), 2**63 - 1)
EPOCHS = st.integers(-(2**15), 2**15 - 1)
CODES = st.sampled_from([ErrorCode.none, ErrorCode.invalid_txn_state, ErrorCode.producer_fenced])
PARTITIONS = st.dictionaries(IDS, st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4), max_size=3)
END_TXN_VERSIONS, ADD_VERSIONS = range(6), range(4)


def by_schema(api_key: int, version: int, fields: Mapping[str, object]) -> bytes:
    return encode_response_frame(RequestHeader(api_key, version, 99, None), {"throttle_time": 0, **fields})


@given(st.sampled_from(END_TXN_VERSIONS), IDS, PRODUCER_IDS, EPOCHS, st.booleans(), st.binary(max_size=2))
def test_reads_end_txn_as_the_schema_does(
    version: int, name: str, producer_id: int, epoch: int, committed: bool, behind: bytes
) -> None:
    fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    body = encode_request(END_TXN, version, {**fields, "committed": committed})
    frame = memoryview(b"head" + body + behind)
    read, wanted = decode_end_txn(frame, 4, version), decode_request(END_TXN, version, frame, 4)
    assert read == tuple(getattr(wanted, field) for field in read._fields)
    for end in range(4, 4 + len(body)):
        with pytest.raises(ProtocolError):
            decode_end_txn(frame[:end], 4, version)


@given(st.sampled_from(END_TXN_VERSIONS), CODES, PRODUCER_IDS, EPOCHS)
def test_writes_end_txn_as_the_schema_does(
    version: int, code: ErrorCode, producer_id: int, epoch: int
) -> None:
    fields = {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch}
    wanted = by_schema(END_TXN, version, fields)
    assert encode_end_txn_response(99, version, code, producer_id, epoch) == wanted


@given(st.sampled_from(ADD_VERSIONS), IDS, PRODUCER_IDS, EPOCHS, PARTITIONS, st.binary(max_size=2))
def test_reads_add_partitions_as_the_schema_does(
    version: int, name: str, producer_id: int, epoch: int, topics: dict[str, list[int]], behind: bytes
) -> None:
    fields = {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }
    body = encode_request(ADD_PARTITIONS_TO_TXN, version, fields)
    frame = memoryview(b"head" + body + behind)
    read = decode_add_partitions(frame, 4, version)
    assert read[:3] == (name, producer_id, epoch)
    named = [TopicPartition(topic, index) for topic, indexes in topics.items() for index in indexes]
    assert read.partitions == list(dict.fromkeys(named))
    for end in range(4, 4 + len(body)):
        with pytest.raises(ProtocolError):
            decode_add_partitions(frame[:end], 4, version)


@given(st.sampled_from(ADD_VERSIONS), PARTITIONS, st.lists(CODES, min_size=12, max_size=12))
def test_writes_add_partitions_as_the_schema_does(
    version: int, topics: dict[str, list[int]], given_codes: list[ErrorCode]
) -> None:
    named = [TopicPartition(topic, index) for topic, indexes in topics.items() for index in indexes]
    codes = dict(zip(named, given_codes, strict=False))
    results = [
        {
            "name": topic,
            "results_by_partition": [
                {"partition_index": partition.partition, "partition_error_code": code}
                for partition, code in codes.items()
                if partition.topic == topic
            ],
        }
        for topic in dict.fromkeys(partition.topic for partition in codes)
    ]
    wanted = by_schema(ADD_PARTITIONS_TO_TXN, version, {"results_by_topic_v3_and_below": results})
    assert encode_add_partitions_response(99, version, codes) == wanted


@given(st.sampled_from(ADD_VERSIONS), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(version: int, noise: bytes) -> None:
    for decode in (decode_add_partitions, decode_end_txn):
        try:
            decode(memoryview(noise), 0, version)
        except ProtocolError:
            continue
