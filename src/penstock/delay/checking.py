"""Check of a batch that is produced to a topic with `delivery.delay` or `message.ttl.ms`, before it is appended.

The records of a batch are decoded only if the bytes contain one of Penstock's header names, the batch is compressed, or
the topic has a default delay. With a default delay the batch is rebuilt: each record without a delay gets the header
`penstock-delay-ms`, so that the log shows which records are delayed even if the setting is changed later. Any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.delay.headers import (
    CANCEL,
    DELAY_MS,
    ORIGIN,
    PREFIX,
    DelayHeaders,
    InvalidDelay,
    is_hidden,
    read_delay_headers,
)
from penstock.delay.marking import checked_marks, find_marks, find_marks_in_python
from penstock.delay.retrying import RetryRules
from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header
from penstock.records.building import rebuild_batch
from penstock.records.compression import decompress
from penstock.records.content import Headers
from penstock.records.expiry import TTL_MS, may_expire
from penstock.records.iteration import iterate
from penstock.records.walking import read_headers

_PREFIX = PREFIX.encode()
_INLINE_BYTES = 16_384 if find_marks is find_marks_in_python else 262_144
"""Maximum size in bytes of an uncompressed batch whose headers are read on the event loop, in about ten microseconds.
"""


@dataclass(frozen=True, slots=True)
class DelayRules:
    """Settings of a topic with `delivery.delay` or `message.ttl.ms`."""

    default_ms: int
    """Delay in milliseconds of records without a delay of their own; -1 if they are not delayed."""
    max_ms: int
    max_decompressed_bytes: int
    ttl_ms: int = -1
    """Lifetime in milliseconds of records without a lifetime of their own; -1 if they do not expire."""
    has_delays: bool = True
    """False if the topic has no `delivery.delay`: delay headers in its records then have no meaning."""
    retry: RetryRules | None = None
    """Rules of a retry topic; None for other topics."""

    @property
    def adds_headers(self) -> bool:
        return self.default_ms >= 0 or self.ttl_ms >= 0 or self.retry is not None

    def must_wait(self, batch: memoryview, header: BatchHeader, now_ms: int) -> bool:
        """True if a batch must be checked in a thread pool: it is compressed or long, cancels messages or gets headers.

        Any other batch is checked at once, which takes less time than a change of threads; InvalidBatch if it is not
        valid.
        """
        if self.adds_headers or not self.has_delays:
            return self.adds_headers
        if header.codec:
            return True
        if len(batch) > _INLINE_BYTES:
            return _PREFIX in bytes(batch)
        return bool(check_delays(batch, header, self, now_ms).cancels)


class CheckedBatch(NamedTuple):
    batch: memoryview
    header: BatchHeader
    cancels: tuple[int, ...]
    """Ids of the messages that the batch cancels, in the order of its records."""


def check_delays(batch: memoryview, header: BatchHeader, rules: DelayRules, now_ms: int) -> CheckedBatch:
    """Check the records of a batch that is stored at `now_ms`; InvalidBatch with the first record that is not valid."""
    body = bytes(decompress(header.codec, batch[HEADER_SIZE:], rules.max_decompressed_bytes))
    if not rules.adds_headers and _PREFIX not in body:
        return CheckedBatch(batch, header, ())
    if rules.retry is not None:
        batch = counted(batch, header, rules, rules.retry)
        header = read_header(batch)
        body = bytes(decompress(header.codec, batch[HEADER_SIZE:], rules.max_decompressed_bytes))
    marks, is_consecutive = checked_marks(body, header.record_count, rules.max_ms, now_ms + rules.max_ms)
    if not is_consecutive:
        raise InvalidBatch(ErrorCode.invalid_record, "the offsets inside the batch are not consecutive")
    cancels: list[int] = []
    for mark in marks if rules.has_delays else ():
        try:
            found = _check_record(read_headers(body, mark.headers_start, mark.header_count), rules, now_ms)
        except InvalidDelay as error:
            raise InvalidBatch(ErrorCode.invalid_record, str(error), (mark.offset_delta,)) from None
        if found.cancels is not None:
            if header.is_transactional:
                raise InvalidBatch(
                    ErrorCode.invalid_record,
                    f"{CANCEL} is not possible in a transaction",
                    (mark.offset_delta,),
                )
            cancels.append(found.cancels)
    if rules.adds_headers:
        batch = with_defaults(batch, header, rules)
        header = read_header(batch)
    return CheckedBatch(batch, header, tuple(cancels))


def _check_record(headers: Headers, rules: DelayRules, now_ms: int) -> DelayHeaders:
    for name, _ in headers:
        if name in ORIGIN:
            raise InvalidDelay(f"only the broker sets the header {name} in a topic with delivery.delay")
    found = read_delay_headers(headers)
    if found.delay is not None and found.delay.due_ms(now_ms) - now_ms > rules.max_ms:
        raise InvalidDelay(f"the delay is longer than delivery.delay.max.ms ({rules.max_ms} ms)")
    return found


def counted(batch: memoryview, header: BatchHeader, rules: DelayRules, retry: RetryRules) -> memoryview:
    """Rebuild the batch: each record gets one more attempt and a delay. Timestamps, producer and codec stay."""
    records = []
    for index, record in enumerate(
        iterate(batch, header, max_decompressed_bytes=rules.max_decompressed_bytes)
    ):
        try:
            headers = retry.counted(record.headers, (record.key or b"") + (record.value or b""), index)
        except InvalidDelay as error:
            raise InvalidBatch(ErrorCode.invalid_record, str(error), (index,)) from None
        records.append(record._replace(headers=headers))
    return memoryview(rebuild_batch(header, records))


def with_defaults(batch: memoryview, header: BatchHeader, rules: DelayRules) -> memoryview:
    """Rebuild the batch: records without a delay or lifetime get the default. Timestamps, producer and codec stay."""
    records = [
        record._replace(headers=record.headers + _missing(record.headers, rules))
        for record in iterate(batch, header, max_decompressed_bytes=rules.max_decompressed_bytes)
    ]
    return memoryview(rebuild_batch(header, records))


def _missing(headers: Headers, rules: DelayRules) -> Headers:
    """Headers with the topic's defaults, for a record that has no such headers itself."""
    missing: list[tuple[str, bytes | None]] = []
    if rules.default_ms >= 0 and not is_hidden(headers):
        missing.append((DELAY_MS, str(rules.default_ms).encode()))
    if rules.ttl_ms >= 0 and not may_expire(headers):
        missing.append((TTL_MS, str(rules.ttl_ms).encode()))
    return tuple(missing)
