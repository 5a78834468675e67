"""Records that the gateway takes from a Fetch response: nothing behind a damaged batch, and never its bytes."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorCode, InvalidBatch
from penstock.gateway.fetched_records import take_records
from penstock.records.building import NewRecord, build_batch


def response(*, changed: int | None = None) -> memoryview:
    """Three batches of one record; of the batch with number `changed` the last byte of its value is changed."""
    found = bytearray()
    for number in range(3):
        batch = bytearray(build_batch([NewRecord(b"key", b"value-%d" % number, 0)]))
        batch[:8] = number.to_bytes(8, "big")
        if number == changed:
            batch[batch.index(b"value-%d" % number)] ^= 1
        found += batch
    return memoryview(found)


def test_all_records_of_whole_batches_are_taken() -> None:
    taken, next_offset = take_records(response(), None, 0, 10)
    assert [record.value for record in taken] == [b"value-0", b"value-1", b"value-2"]
    assert next_offset == 3


def test_records_end_before_a_batch_with_a_wrong_crc() -> None:
    taken, next_offset = take_records(response(changed=1), None, 0, 10)
    assert [record.value for record in taken] == [b"value-0"]
    assert next_offset == 1


def test_first_batch_with_a_wrong_crc_is_an_error() -> None:
    with pytest.raises(InvalidBatch) as caught:
        take_records(response(changed=0), None, 0, 10)
    assert caught.value.code is ErrorCode.corrupt_message


def test_expired_records_are_left_out_and_passed() -> None:
    records = [
        NewRecord(None, b"%d" % place, 1_000, (("penstock-ttl-ms", b"%d" % (place * 100)),))
        for place in range(5)
    ]
    fetched = memoryview(build_batch(records))
    taken, next_offset = take_records(fetched, None, 0, 10, 1_200)
    assert ([record.offset for record in taken], next_offset) == ([3, 4], 5)
    taken, next_offset = take_records(fetched, None, 0, 10, 9_000)
    assert (taken, next_offset) == ((), 5)
