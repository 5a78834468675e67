from __future__ import annotations

import resource
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.wire import framing
from penstock.wire.framing import FrameReader

LIMIT = 10**6


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Put in as much at a time as the reader has room for."""
    frames: list[bytes] = []
    view = memoryview(data)
    while len(view):
        buffer = reader.buffer()
        count = min(len(buffer), len(view))
        buffer[:count] = view[:count]
        view = view[count:]
        frames += map(bytes, reader.received(count))
    return frames


@given(
    st.lists(st.binary(min_size=1, max_size=300) | st.integers(1, 200_000).map(bytes), max_size=6),
    st.lists(st.integers(1, 70_000), max_size=8),
)
def test_frames_are_complete_however_bytes_are_split(bodies: list[bytes], cuts: list[int]) -> None:
    data = framed(*bodies)
    reader = FrameReader(LIMIT)
    frames = []
    position = 0
    for cut in [*cuts, len(data)]:
        frames += feed(reader, data[position : position + cut])
        position += cut
    assert frames == bodies
    assert not reader.is_inside_frame


def test_one_read_gives_many_small_frames() -> None:
    bodies = [b"request %d" % i for i in range(1000)]
    reader = FrameReader(LIMIT)
    data = framed(*bodies)
    reader.buffer()[: len(data)] = data
    assert list(map(bytes, reader.received(len(data)))) == bodies


def test_reader_knows_whether_a_frame_has_begun() -> None:
    reader = FrameReader(LIMIT)
    assert not reader.is_inside_frame
    for piece in (b"\x00", b"\x00\x80\x00", b"x" * 20_000):
        feed(reader, piece)
        assert reader.is_inside_frame
    assert feed(reader, b"x" * (0x8000 - 20_000)) == [b"x" * 0x8000]
    assert not reader.is_inside_frame


@pytest.mark.parametrize("size", [100, 50_000, 500_000])
def test_a_frame_may_be_kept_and_written_while_others_arrive(size: int) -> None:
    reader = FrameReader(LIMIT)
    data = framed(b"a" * size)
    kept: list[memoryview] = []
    while not kept:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        kept = reader.received(count)
    kept[0][:1] = b"b"
    feed(reader, framed(b"c" * size))
    assert bytes(kept[0]) == b"b" + b"a" * (size - 1)


def test_readers_do_not_mix_their_bytes() -> None:
    first, second = FrameReader(LIMIT), FrameReader(LIMIT)
    one, other = framed(b"one" * 50), framed(b"other" * 50)
    for i in range(0, 100, 10):
        assert feed(first, one[i : i + 10]) == []
        assert feed(second, other[i : i + 10]) == []
    assert feed(first, one[100:]) == [b"one" * 50]
    assert feed(second, other[100:]) == [b"other" * 50]


def test_reader_has_space_if_another_thread_takes_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class TakenMeanwhile(list[bytearray]):
        """Empty list that was not empty a moment ago, when another thread had not yet taken its last element."""

        def __bool__(self) -> bool:
            return True

    monkeypatch.setattr(framing, "_free_scratch", TakenMeanwhile())
    reader = FrameReader(100)
    assert len(reader.buffer()) > 0


@pytest.mark.parametrize("size", [5, 50_000])
def test_empty_receive_does_not_change_the_reader(size: int) -> None:
    reader = FrameReader(LIMIT)
    data = framed(b"x" * size)
    feed(reader, data[:-2])
    reader.buffer()
    reader.buffer()
    reader.release()
    assert reader.is_inside_frame
    assert feed(reader, data[-2:]) == [b"x" * size]


@pytest.mark.parametrize(
    "start",
    [
        b"\x80\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        struct.pack(">i", LIMIT + 1),
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
def test_invalid_size_is_refused_at_once(start: bytes) -> None:
    with pytest.raises(ProtocolError):
        feed(FrameReader(LIMIT), start)


def test_the_limit_is_inclusive_and_can_change() -> None:
    reader = FrameReader(10)
    assert feed(reader, framed(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(ProtocolError):
        feed(reader, framed(b"x" * 11))
    reader = FrameReader(10)
    reader.max_frame_bytes = 11
    assert feed(reader, framed(b"x" * 11)) == [b"x" * 11]


def test_memory_grows_with_received_bytes_not_announced_size() -> None:
    readers = [FrameReader(2**31 - 1) for _ in range(1000)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for reader in readers:
        assert feed(reader, b"\x7f\xff\xff\xff" + b"few") == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 * 1024
    for reader in readers:
        assert feed(reader, bytes(20_000)) == []
        assert len(reader.buffer()) <= 3 * 20_007
