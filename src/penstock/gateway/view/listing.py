"""Pages of a long list: search, prefix, sort, limit and a cursor that survives changes of the list.

A cursor holds the sort value and the name of the last entry of its page. The next page has the entries after that
place, even if the entry itself has moved or disappeared. Pure.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

NAME = "name"
Place = tuple[float, str]
"""Sort key of an entry: its sort value and its name."""


class WrongCursor(Exception):
    """The cursor is malformed, or belongs to another sort order."""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    items: list[T]
    cursor: str | None
    """Cursor of the next page; None if this is the last."""


def name_filter(search: str, prefix: str) -> Callable[[str], bool]:
    """Return a function that checks names: a name must begin with `prefix`, and contain every word of `search`
    without regard to case.
    """
    words = search.lower().split()

    def is_found(name: str) -> bool:
        if not name.startswith(prefix):
            return False
        lowered = name.lower()
        return all(word in lowered for word in words)

    return is_found if words or prefix else lambda name: True


def take_page(
    items: Iterable[T], place: Callable[[T], Place], sort: str, limit: int | None, cursor: str | None
) -> ListPage[T]:
    """Return the page after a cursor, sorted by place; without a limit, all remaining entries."""
    after = None if cursor is None else read_cursor(cursor, sort)
    placed = ((place(item), item) for item in items)
    rest = ((at, item) for at, item in placed if after is None or at > after)
    if limit is None:
        return ListPage([item for _, item in sorted(rest, key=_first)], None)
    found = nsmallest(limit + 1, rest, key=_first)
    if len(found) <= limit:
        return ListPage([item for _, item in found], None)
    return ListPage([item for _, item in found[:limit]], make_cursor(found[limit - 1][0], sort))


def take_named_page(
    items: Sequence[T], name: Callable[[T], str], limit: int | None, cursor: str | None
) -> ListPage[T]:
    """Return the page after a cursor. `items` must be sorted by name."""
    first = 0 if cursor is None else bisect_right(items, read_cursor(cursor, NAME)[1], key=name)
    if limit is None or first + limit >= len(items):
        return ListPage(list(items[first:]), None)
    found = list(items[first : first + limit])
    return ListPage(found, make_cursor((0.0, name(found[-1])), NAME))


def _first(pair: tuple[Place, T]) -> Place:
    return pair[0]


def make_cursor(place: Place, sort: str) -> str:
    return urlsafe_b64encode(msgspec.json.encode([sort, *place])).decode().rstrip("=")


def read_cursor(cursor: str, sort: str) -> Place:
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        made_for, value, name = msgspec.json.decode(raw, type=tuple[str, float, str])
    except (Error, ValueError, msgspec.DecodeError):
        raise WrongCursor("the cursor is not one of this list; leave it out to start over") from None
    if made_for != sort:
        raise WrongCursor(f"the cursor belongs to sort={made_for[:20]}; leave it out to start over")
    return value, name
