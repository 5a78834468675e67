"""What blocks of kills have in common, of one broker and of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

SETTINGS = (
    ("durability=auto", "event.loop=uvloop"),
    ("durability=os", "event.loop=asyncio"),
    ("durability=fsync", "event.loop=uvloop"),
)
"""One of these for each block, by its seed."""


@dataclass(frozen=True, slots=True)
class BlockResult:
    cycles: int
    acknowledged: int
    stored: int
    violations: tuple[str, ...]
    longest_pause_s: float = 0.0
    """Until all writers had an acknowledgement again, after one broker of a healed cluster was killed."""
