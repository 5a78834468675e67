"""The journal of changes: a reader that follows it, in pages of any size, has the present values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.server.inspection import change_journal
from penstock.server.inspection.change_journal import ChangeJournal

KEYS = st.integers(0, 5)
STEPS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 2), st.integers(0, 3)), max_size=60)


@given(STEPS)
def test_reader_of_changes_has_the_present_values(steps: list[tuple[int, int | None, int]]) -> None:
    journal: ChangeJournal[int, int] = ChangeJournal()
    present: dict[int, int] = {}
    copy: dict[int, int] = {}
    version = 0
    for key, value, limit in steps:
        if value is None:
            journal.remove(key)
            present.pop(key, None)
        else:
            journal.put(key, value)
            present[key] = value
        if limit:
            version = _follow(journal, version, limit, copy)
    while version < journal.version:
        version = _follow(journal, version, 2, copy)
    assert copy == present
    assert len(journal) == len(present)
    assert set(journal.keys()) == set(present)


def _follow(journal: ChangeJournal[int, int], version: int, limit: int, copy: dict[int, int]) -> int:
    changes, reached = journal.since(version, limit)
    assert len(changes) <= limit
    for change in changes:
        if change.value is None:
            copy.pop(change.key, None)
        else:
            copy[change.key] = change.value
    return reached


def test_equal_value_adds_no_change_to_the_journal() -> None:
    journal: ChangeJournal[str, int] = ChangeJournal()
    journal.put("a", 1)
    journal.put("a", 1)
    assert journal.version == 1


def test_dropped_removals_make_lagging_readers_start_over() -> None:
    journal: ChangeJournal[int, int] = ChangeJournal()
    for key in range(change_journal.MAX_REMOVED + 1):
        journal.put(key, 1)
        journal.remove(key)
    assert journal.first_complete == 2
    assert len(journal.since(0, 10**6)[0]) == change_journal.MAX_REMOVED
