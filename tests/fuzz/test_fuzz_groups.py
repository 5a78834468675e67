"""Group records of any content: they are decoded, or skipped."""

from __future__ import annotations

import contextlib

from fuzz_harness import fuzz, mutations
from hypothesis import strategies as st

from penstock.groups.record_codec import decode_record, encode_record
from penstock.state_log.replaying import UnknownRecord
from support.group_records import group_records

encoded = group_records().map(encode_record)
keys = encoded.map(lambda pair: pair[0])
values = encoded.map(lambda pair: pair[1] or b"")


def test_random_group_records_are_decoded_or_skipped() -> None:
    def target(drawn: tuple[bytes, bytes | None]) -> None:
        with contextlib.suppress(UnknownRecord):
            decoded = decode_record(*drawn)
            assert decode_record(*encode_record(decoded)) == decoded

    damaged = encoded.flatmap(
        lambda pair: st.tuples(
            st.just(pair[0]) | mutations(st.just(pair[0])), mutations(st.just(pair[1] or b"")) | st.none()
        )
    )
    fuzz(target, damaged | st.tuples(keys, st.none() | st.binary(max_size=60)) | st.tuples(keys, values))
