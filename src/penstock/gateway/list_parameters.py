"""Parameters of the lists of topics and groups, and the search and paging of these lists."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

from penstock.gateway.http.endpoint import Call, Parameter, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.view.listing import (
    NAME,
    ListPage,
    Place,
    WrongCursor,
    name_filter,
    take_named_page,
    take_page,
)
from penstock.internal_client.slices import in_slices

T = TypeVar("T")

MAX_LIMIT = 10_000
ITEMS_PER_STEP = 32
"""Number of entries that are checked in one step; between steps other work of the event loop can run."""
_TEXT = {"type": "string", "minLength": 1, "maxLength": 250}


def list_parameters(sorts: Iterable[str]) -> tuple[Parameter, ...]:
    orders = list(sorts)
    return (
        query("search", _TEXT, "Only names that contain every word of this text, in any case."),
        query("prefix", _TEXT, "Only names that begin with this text."),
        query(
            "sort",
            {"type": "string", "enum": orders, "default": orders[0]},
            "The order: by name, or by another figure with the greatest first.",
        ),
        query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
            "The maximum number of entries in the response; all unless given.",
        ),
        query(
            "cursor",
            {"type": "string", "minLength": 1, "maxLength": 1_000},
            "The `cursor` of the last response, for the next page.",
        ),
    )


async def find_all(items: Iterable[T], call: Call, kind: str, name: Callable[[T], str]) -> list[T]:
    """Return the entries that match the search parameters and that the client may describe.

    The search runs in short steps, so that it does not block the event loop.
    """
    is_found = name_filter(call.parameters.get("search", ""), call.parameters.get("prefix", ""))
    items = tuple(items)
    await call.learn("DESCRIBE", kind, filter(is_found, map(name, items)))

    def finding() -> Generator[None, None, list[T]]:
        found = []
        for place, item in enumerate(items):
            own = name(item)
            if is_found(own) and call.allows("DESCRIBE", kind, own):
                found.append(item)
            if place % ITEMS_PER_STEP == 0:
                yield
        return found

    return await in_slices(finding())


def page_of(
    items: Sequence[T], call: Call, name: Callable[[T], str], place: Callable[[T], Place]
) -> ListPage[T]:
    """Return the page that the parameters ask for. `items` must be sorted by name.

    Raises Problem for a cursor of another list.
    """
    asked = call.parameters
    try:
        if asked["sort"] == NAME:
            return take_named_page(items, name, asked.get("limit"), asked.get("cursor"))
        return take_page(items, place, asked["sort"], asked.get("limit"), asked.get("cursor"))
    except WrongCursor as error:
        raise Problem(400, str(error), error="INVALID_REQUEST") from None
