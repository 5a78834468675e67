"""Pages of a long list: every entry is on one page, in order, whatever is added or removed in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.view.listing import (
    ListPage,
    WrongCursor,
    make_cursor,
    name_filter,
    read_cursor,
    take_named_page,
    take_page,
)

ENTRIES = st.dictionaries(st.text("ab.é", min_size=1, max_size=4), st.integers(-3, 3), max_size=30)


def page(entries: dict[str, int], limit: int | None, cursor: str | None) -> ListPage[str]:
    return take_page(entries, lambda name: (float(-entries[name]), name), "bytes", limit, cursor)


@given(ENTRIES, st.integers(1, 7))
def test_pages_have_every_entry_once_and_in_order(entries: dict[str, int], limit: int) -> None:
    found: list[str] = []
    cursor = None
    while True:
        some = page(entries, limit, cursor)
        assert len(some.items) <= limit
        found += some.items
        cursor = some.cursor
        if cursor is None:
            break
    assert found == sorted(entries, key=lambda name: (-entries[name], name))
    assert page(entries, None, None).items == found


@given(ENTRIES, ENTRIES, st.integers(1, 5))
def test_next_page_begins_behind_the_last_after_changes(
    entries: dict[str, int], others: dict[str, int], limit: int
) -> None:
    first = page(entries, limit, None)
    if first.cursor is None:
        return
    last = first.items[-1]
    behind = page(others, None, first.cursor).items
    assert all((-others[name], name) > (-entries[last], last) for name in behind)


def test_search_finds_all_words_in_any_case() -> None:
    assert name_filter("paid order", "")("Orders.Paid")
    assert not name_filter("paid orders x", "")("Orders.Paid")
    assert name_filter("", "ord")("orders")
    assert not name_filter("", "Ord")("orders")
    assert name_filter("", "")("anything")


@given(st.sets(st.text("ab.é", min_size=1, max_size=4)), st.integers(1, 7))
def test_pages_by_name_are_those_of_any_other_order(names: set[str], limit: int) -> None:
    ordered = sorted(names)
    cursor = None
    while True:
        quick = take_named_page(ordered, str, limit, cursor)
        assert quick == take_page(names, lambda name: (0.0, name), "name", limit, cursor)
        cursor = quick.cursor
        if cursor is None:
            break
    assert take_named_page(ordered, str, None, None).items == ordered


@pytest.mark.parametrize("text", ["x", "%%%", make_cursor((1.0, "a"), "name"), "WyJuYW1lIl0"])
def test_foreign_cursor_is_refused(text: str) -> None:
    with pytest.raises(WrongCursor):
        read_cursor(text, "bytes")
