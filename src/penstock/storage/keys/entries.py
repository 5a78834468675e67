"""Entries of the key index (`derived.entries`): the sort key is a hash of the record's key.

Entries of a damaged batch get a wrong CRC on purpose, so that a lookup reports the damage. A record with an idempotency
key has a second entry, whose hash is of both keys. Hashes can collide, so a lookup compares the keys in the record. A
batch whose records cannot be read has no entries, because consumers cannot read them either. Reads and writes no files.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

from crc32c import crc32c

from penstock.errors import InvalidBatch
from penstock.records.batch import HEADER_SIZE, BatchHeader, crc_matches
from penstock.records.content import Headers
from penstock.records.walking import layouts, read_headers
from penstock.storage.derived.entries import PLACE, SORT_KEY_BYTES, IndexKind, batch_body
from penstock.storage.segment import KEYS_SUFFIX

OUR_HEADERS = "penstock-"
"""Prefix of the headers that Penstock adds to a record."""
IDEMPOTENCY_HEADER = f"{OUR_HEADERS}idempotency-key"

_IDEMPOTENCY_NAME = IDEMPOTENCY_HEADER.encode()
_KEY_LENGTH = Struct(">I").pack
_ALL_BITS = 0xFFFFFFFF


def key_hash(key: bytes) -> bytes:
    return blake2b(key, digest_size=SORT_KEY_BYTES).digest()


def idempotency_hash(key: bytes | None, idempotency_key: bytes) -> bytes:
    """Hash of a record key and an idempotency key. Idempotency keys are unique only among records with the same key."""
    scoped = _KEY_LENGTH(len(key or b"")) + (key or b"") + idempotency_key
    return blake2b(scoped, digest_size=SORT_KEY_BYTES, person=b"idempotency").digest()


def idempotency_key(headers: Headers) -> bytes | None:
    return next((value for name, value in headers if name == IDEMPOTENCY_HEADER and value is not None), None)


def may_have_idempotency_key(batch: memoryview, header: BatchHeader) -> bool:
    """True if a record of the batch may have an idempotency key, so that the records have to be read."""
    return bool(header.codec) or _IDEMPOTENCY_NAME in bytes(batch)


def entries_of(
    batch: memoryview, header: BatchHeader, base_offset: int, position: int, max_decompressed_bytes: int
) -> list[bytes]:
    """The entries of the batch at `position` of the segment that begins at `base_offset`, in the order of offsets."""
    if header.is_control:
        return []
    try:
        body = bytes(batch_body(batch, header, max_decompressed_bytes))
        header_crc = crc32c(batch[:HEADER_SIZE])
        damage = 0 if crc_matches(batch, header) else _ALL_BITS
        has_idempotency = _IDEMPOTENCY_NAME in body
        entries: list[bytes] = []
        shift, last = header.base_offset - base_offset, -1
        for start, end, _, delta, key_start, key_length, _, _, headers, count in layouts(
            body, header.record_count
        ):
            if not last < delta <= header.last_offset_delta:
                return []  # the producer sent offset deltas out of order, which an index cannot hold
            last = delta
            place = PLACE.pack(shift + delta, position, start, crc32c(body[start:end], header_crc) ^ damage)
            key = None if key_length < 0 else body[key_start : key_start + key_length]
            if key is not None:
                entries.append(blake2b(key, digest_size=SORT_KEY_BYTES).digest() + place)
            if has_idempotency:
                own = idempotency_key(read_headers(body, headers, count))
                if own is not None:
                    entries.append(idempotency_hash(key, own) + place)
    except InvalidBatch:
        return []
    return entries


KEYS = IndexKind(KEYS_SUFFIX, b"keys", entries_of, is_hashed=True)
