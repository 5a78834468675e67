"""`penstock produce`: send records from standard input or files to a topic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from penstock.cli.cluster_client import ClusterClient, client_config
from penstock.cli.disk_space import full_disk
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.input import InputFormat, read_records
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, TopicArgument
from penstock.cli.output import print_json, show_bytes
from penstock.cli.progress import reading_progress
from penstock.cli.record import Headers, OutgoingRecord, parse_headers
from penstock.cli.sender import RecordSender, Sent
from penstock.cli.times import parse_duration_ms
from penstock.clock import SystemClock
from penstock.config import DELIVERY_DELAY, DELIVERY_DELAY_MAX_MS
from penstock.config.resources import ConfigResourceType
from penstock.delay.headers import DELAY_MS, DELIVER_AT, InvalidDelay, parse_time, read_delay_headers

STDIN = "-"


class Acks(StrEnum):
    ALL = "all"
    ONE = "1"
    NONE = "0"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


FilesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Files; standard input by default.")
]
FormatOption = Annotated[
    InputFormat, typer.Option("--format", help="A record is a line, a JSON line, or a whole file (binary).")
]
KeySeparatorOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A line is a key, this text, and a value.")
]
KeyOption = Annotated[str | None, typer.Option(help="The key of records without a key.")]
HeadersOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header for every record; repeatable.")
]
TombstonesOption = Annotated[
    bool, typer.Option(help="Send an empty value as null, a tombstone that deletes the key.")
]
PartitionOption = Annotated[
    int | None, typer.Option(min=0, help="The partition; chosen by the key by default.")
]
AcksOption = Annotated[
    Acks, typer.Option(help="Acknowledgements to wait for: all in-sync replicas, 1 (leader), 0.")
]
CompressionOption = Annotated[Compression, typer.Option(help="Compression of batches.")]
IdempotentOption = Annotated[bool, typer.Option(help="No duplicates from retries; needs --acks all.")]
DelayOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="Deliver the records this much later, such as 10m; needs delivery.delay."
    ),
]
DeliverAtOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Deliver the records at a time, such as 2026-03-01T12:00:00+01:00."),
]
TimeoutOption = Annotated[float, typer.Option(min=0.001, help="Delivery timeout of a record, in seconds.")]
MAX_MESSAGE_BYTES = 1_000_000_000
"""Message size limit of the client. It is very large, so that the topic's `max.message.bytes` is the effective
limit.
"""


def register(root: typer.Typer) -> None:
    root.command()(produce)


def produce(
    topic: TopicArgument,
    files: FilesArgument = None,
    form: FormatOption = InputFormat.LINES,
    key_separator: KeySeparatorOption = None,
    key: KeyOption = None,
    header: HeadersOption = None,
    tombstones: TombstonesOption = False,
    partition: PartitionOption = None,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    idempotent: IdempotentOption = False,
    delay: DelayOption = None,
    deliver_at: DeliverAtOption = None,
    timeout: TimeoutOption = 30.0,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Send records to a topic: lines of standard input, JSON lines, or whole files."""
    if idempotent and acks is not Acks.ALL:
        raise Failure(
            f"--idempotent needs --acks all, not {acks}", "Omit --acks or --idempotent.", code=ExitCode.USAGE
        )
    delay_headers = _parse_delay(delay, deliver_at)
    read = partial(
        read_records,
        form=form,
        key_separator=None if key_separator is None else _unescape(key_separator),
        key=None if key is None else key.encode(),
        headers=parse_headers(header or []) + delay_headers,
        empty_is_null=tombstones,
    )
    cluster = ClusterClient(bootstrap)
    if delay_headers:
        _require_delays(cluster, topic, delay_headers)
    config = client_config(bootstrap) | _producer_config(acks, compression, idempotent, timeout)
    sender = RecordSender(topic, config, partial(full_disk, cluster))
    _send_all(files or [STDIN], read, sender, partition)
    _report(topic, sender.sent, json)


def _send_all(
    files: Sequence[str],
    read: Callable[[BinaryIO, str], Iterator[OutgoingRecord]],
    sender: RecordSender,
    partition: int | None,
) -> None:
    """Send the records of all files. All files are opened before the first record is sent."""
    with ExitStack() as stack:
        sources = [(name, _open(name, stack)) for name in files]
        progress = stack.enter_context(reading_progress([Path(name) for name in files if name != STDIN]))
        for name, source in sources:
            for record in read(progress.watch(source), "standard input" if name == STDIN else name):
                sender.send(record, partition)
    sender.finish()


def _producer_config(
    acks: Acks, compression: Compression, idempotent: bool, timeout: float
) -> dict[str, Any]:
    return {
        "acks": str(acks),
        "compression.type": str(compression),
        "enable.idempotence": idempotent,
        "delivery.timeout.ms": int(timeout * 1000),
        "linger.ms": 20,
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "partitioner": "murmur2_random",
    }


def _open(name: str, stack: ExitStack) -> BinaryIO:
    if name == STDIN:
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(name).open("rb"))
    except OSError as error:
        raise Failure(
            f"cannot read {name}: {error.strerror}",
            "Nothing was sent. Name a readable file, or - for standard input.",
        ) from None


def _parse_delay(delay: str | None, deliver_at: str | None) -> Headers:
    """Return the header of a delay; no headers without a delay."""
    if delay is not None and deliver_at is not None:
        raise Failure("--delay and --deliver-at exclude each other", "Give one of them.", code=ExitCode.USAGE)
    if delay is not None:
        return ((DELAY_MS, b"%d" % parse_duration_ms(delay)),)
    if deliver_at is None:
        return ()
    try:
        return ((DELIVER_AT, b"%d" % max(0, parse_time(deliver_at.encode()))),)
    except InvalidDelay as error:
        raise Failure(
            str(error).replace(f"{DELIVER_AT}=", "--deliver-at "),
            "Write 2026-03-01T12:00:00Z or milliseconds since 1970.",
            code=ExitCode.USAGE,
        ) from None


def _require_delays(cluster: ClusterClient, topic: str, headers: Headers) -> None:
    """Raise Failure if the topic does not support delayed messages, or does not allow a delay of this length."""
    entries = cluster.run(lambda client: client.configs.get(ConfigResourceType.TOPIC, topic), topic)
    settings = {entry.name: entry.value for entry in entries}
    if settings.get(DELIVERY_DELAY.name) != "true":
        raise Failure(
            f"{topic} has no delayed messages",
            f"Create a topic with --set {DELIVERY_DELAY.name}=true.",
        )
    max_ms, now_ms = int(settings[DELIVERY_DELAY_MAX_MS.name] or 0), SystemClock().now_ms()
    delay = read_delay_headers(headers).delay
    if delay is not None and delay.due_ms(now_ms) - now_ms > max_ms:
        raise Failure(
            f"the delay is longer than {DELIVERY_DELAY_MAX_MS.name} of {topic} ({max_ms} ms)",
            f"Send it later, or `penstock topic alter {topic} --set {DELIVERY_DELAY_MAX_MS.name}=MS`.",
        )


def _unescape(text: str) -> bytes:
    return text.replace("\\t", "\t").encode()


def _report(topic: str, sent: Sent, as_json: bool) -> None:
    if as_json:
        offsets = {str(partition): offset for partition, offset in sorted(sent.next_offsets.items())}
        print_json({"topic": topic, "records": sent.records, "bytes": sent.bytes, "next_offsets": offsets})
    else:
        noun = "record" if sent.records == 1 else "records"
        typer.echo(f"sent {sent.records:,} {noun} ({show_bytes(sent.bytes)}) to {topic}", err=True)
