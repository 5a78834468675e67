"""Splitter of a byte stream into size-prefixed frames, without IO of its own.

The caller receives bytes into `buffer()` and then calls `received(count)`, without other calls in between.
Memory grows with the bytes received, never with the size that a frame announces. Each frame has memory of its
own, which the caller may keep and modify.
"""

from __future__ import annotations

from struct import Struct

from penstock.errors import ProtocolError

SIZE_PREFIX = 4

_SIZE = Struct(">i")
_SCRATCH_BYTES = 64 * 1024
_LARGE_FRAME_BYTES = 16 * 1024
"""Received bytes of an incomplete frame from which on the frame gets memory of its own."""
_FAST_GROWTH_BYTES = 512 * 1024
"""Size in bytes below which the memory of a frame grows by a factor of four at a time, so that few reads are
needed. Above it grows by half, so that little is wasted.
"""

# Scratch space is needed only between a `buffer()` and its `received()`, so connections share a few buffers.
# Several threads use the list, so `pop` may find it empty in spite of an earlier check.
_free_scratch: list[bytearray] = []
_zeros = memoryview(bytes(1024 * 1024))


class FrameReader:
    """Splitter for the frames of one peer."""

    __slots__ = ("_filled", "_frame", "_frame_size", "_rest", "_scratch", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._rest = b""  # Start of a frame with its size, while the frame has no memory of its own.
        self._scratch: bytearray | None = None
        self._frame: bytearray | None = None  # Large frame that is being received.
        self._frame_size = 0
        self._filled = 0
        self._view = memoryview(b"")  # Buffer that the caller was given last.

    @property
    def is_inside_frame(self) -> bool:
        """True if a frame has been received in part."""
        return self._frame is not None or bool(self._rest)

    def buffer(self) -> memoryview:
        """Return a buffer for the next bytes, which is never empty."""
        if self._frame is not None:
            self._view = memoryview(self._frame)[self._filled :]
            return self._view
        if self._scratch is None:
            self._scratch = _take_scratch()
        self._scratch[: len(self._rest)] = self._rest
        self._view = memoryview(self._scratch)[len(self._rest) :]
        return self._view

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that the last `count` received bytes complete, without their size prefixes."""
        self._view.release()
        if self._frame is not None:
            return self._continue_frame(self._frame, count)
        assert self._scratch is not None
        scratch, self._scratch = self._scratch, None
        try:
            return self._split(scratch, len(self._rest) + count)
        finally:
            _free_scratch.append(scratch)

    def release(self) -> None:
        """Give an unused buffer back to the shared ones."""
        if self._scratch is not None:
            self._view.release()
            _free_scratch.append(self._scratch)
            self._scratch = None

    def _split(self, scratch: bytearray, end: int) -> list[memoryview]:
        frames: list[memoryview] = []
        position, limit = 0, self.max_frame_bytes
        while end - position >= SIZE_PREFIX:
            (size,) = _SIZE.unpack_from(scratch, position)
            if not 0 < size <= limit:
                raise ProtocolError(f"the frame has {size} bytes; 1 to {limit} are allowed")
            start = position + SIZE_PREFIX
            if start + size > end:
                if end - start >= _LARGE_FRAME_BYTES:
                    self._begin_frame(scratch[start:end], size)
                    return frames
                break
            frames.append(memoryview(scratch[start : start + size]))
            position = start + size
        self._rest = bytes(scratch[position:end]) if position < end else b""
        return frames

    def _begin_frame(self, received: bytearray, size: int) -> None:
        self._rest = b""
        self._frame, self._frame_size, self._filled = received, size, len(received)
        self._grow(received)

    def _continue_frame(self, frame: bytearray, count: int) -> list[memoryview]:
        self._filled += count
        if self._filled < len(frame):
            return []
        if self._filled < self._frame_size:
            self._grow(frame)
            return []
        self._frame = None
        return [memoryview(frame)]

    def _grow(self, frame: bytearray) -> None:
        grown = len(frame) * 4 if len(frame) < _FAST_GROWTH_BYTES else len(frame) * 3 // 2
        wanted = min(self._frame_size, grown) - len(frame)
        while wanted > 0:
            step = min(wanted, len(_zeros))
            frame += _zeros[:step]
            wanted -= step


def _take_scratch() -> bytearray:
    try:
        return _free_scratch.pop()
    except IndexError:
        return bytearray(_SCRATCH_BYTES)
