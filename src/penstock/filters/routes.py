"""Patterns over the header `penstock-route`: words between dots, `*` for one word, `#` for any number of words."""

from __future__ import annotations

from functools import lru_cache

ROUTE_HEADER = "penstock-route"
MAX_ROUTE_LENGTH = 1_000
"""Maximum length of a route or pattern in characters, because the time of a match grows with the product of both."""


def route_matches(pattern: str, route: str) -> bool:
    """True if the whole route matches; ValueError if it is too long."""
    if max(len(route), len(pattern)) > MAX_ROUTE_LENGTH:
        raise ValueError(f"routes and patterns have at most {MAX_ROUTE_LENGTH} characters")
    wanted, words = _words(pattern), _words(route)
    place = at = 0
    restart: tuple[int, int] | None = None
    """Index of the pattern word after the last `#`, and index of the first route word that the `#` does not match."""
    while at < len(words):
        if place < len(wanted) and wanted[place] == "#":
            place += 1
            restart = (place, at)
        elif place < len(wanted) and wanted[place] in ("*", words[at]):
            place, at = place + 1, at + 1
        elif restart is not None:
            restart = (restart[0], restart[1] + 1)
            place, at = restart
        else:
            return False
    return all(word == "#" for word in wanted[place:])


@lru_cache(maxsize=256)
def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(".")) if text else ()
