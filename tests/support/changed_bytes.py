"""Changes of single bytes in the segments of a stopped broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.records.batch import HEADER_SIZE, read_header

LENGTH_AT = 8
MAGIC_AT = 16
CRC_AT = 17
LAST_OFFSET_DELTA_AT = 23


@dataclass(frozen=True, slots=True)
class Segment:
    path: Path

    @property
    def content(self) -> bytes:
        return self.path.read_bytes()

    def batch_at(self, offset: int) -> int:
        """Position of the batch that contains an offset."""
        content, position = self.content, 0
        while position + HEADER_SIZE <= len(content):
            header = read_header(content, position)
            if header.base_offset <= offset < header.next_offset:
                return position
            position += header.size
        raise AssertionError(f"no batch has offset {offset}")

    def flip(self, position: int, mask: int = 0x01) -> None:
        content = bytearray(self.content)
        content[position] ^= mask
        self.path.write_bytes(content)

    def flip_text(self, text: bytes) -> None:
        """Change the last byte of the only occurrence of a text."""
        assert self.content.count(text) == 1
        self.flip(self.content.index(text) + len(text) - 1)

    def damage(self, what: str, offset: int) -> None:
        """Change one byte of the batch at an offset whose record has key-N, value-N and a header named name-N."""
        if what in ("key", "value", "name"):
            self.flip_text(b"%s-%d;" % (what.encode(), offset))
            return
        place = {"length": LENGTH_AT + 3, "magic": MAGIC_AT, "crc": CRC_AT, "delta": LAST_OFFSET_DELTA_AT}[
            what
        ]
        self.flip(self.batch_at(offset) + place)


def segments_of(data_dir: Path, topic: str, partition: int = 0) -> list[Segment]:
    return [Segment(path) for path in sorted(data_dir.glob(f"logs/{topic}-{partition}-*/*.log"))]
