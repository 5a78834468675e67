"""Hidden records, found in C and in Python."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.delay.headers import HIDING, is_hidden
from penstock.delay.visible import VisibleRecords
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.building import NewRecord, build_batch

NAMES = st.sampled_from([*sorted(HIDING), "penstock-origin-offset", "region", "penstock-cancel-", ""])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=4)), max_size=3)


@given(st.lists(HEADERS, min_size=1, max_size=20))
def test_c_and_python_select_the_same_records(headers: list[list[tuple[str, bytes | None]]]) -> None:
    records = [NewRecord(None, b"v", 1_000, tuple(each)) for each in headers]
    batch = memoryview(build_batch(records))
    header, body = read_header(batch), batch[HEADER_SIZE:]
    found = VisibleRecords().select(body, header)
    assert found == VisibleRecords(in_c=False).select(body, header)
    shown = [place for place, each in enumerate(headers) if not is_hidden(tuple(each))]
    assert [match.offset_delta for match in found.matches] == shown
