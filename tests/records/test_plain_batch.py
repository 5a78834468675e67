"""Plain batches have the bytes of general ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import crc_matches, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.plain_batch import build_plain_batch, encode_plain_record

KEYS = st.binary(max_size=200)
VALUES = st.none() | st.binary(max_size=200) | st.integers(8_000, 9_000).map(bytes)
PRODUCERS = st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1))


@given(
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=140),
    st.integers(0, 2**62),
    PRODUCERS,
    st.booleans(),
    st.booleans(),
)
def test_plain_batch_has_the_bytes_of_a_general_batch(
    records: list[tuple[bytes, bytes | None]],
    timestamp: int,
    producer: tuple[int, int],
    transactional: bool,
    control: bool,
) -> None:
    producer_id, epoch = producer
    encoded = [encode_plain_record(place, key, value) for place, (key, value) in enumerate(records)]
    batch, header = build_plain_batch(
        encoded,
        timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=transactional,
        control=control,
    )
    assert batch == build_batch(
        [NewRecord(key, value, timestamp) for key, value in records],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=transactional,
        control=control,
    )
    assert header == read_header(batch)
    assert crc_matches(memoryview(batch), header)
