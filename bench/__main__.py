"""`python -m bench`: run scenarios, print a Markdown table, write build/bench/<name>.json."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from bench.comparison import Bar, Row
from bench.context import Context
from bench.kafka_install import BUILD, KafkaUnavailable, kafka_libs
from bench.measure import Spread, rss_mb
from bench.report import machine, markdown, write_json
from bench.scenarios import ALONE, PAIRED
from bench.servers import Control, Kafka, Penstock, Server

MEMORY_BAR = Bar("ratio", "at most", 0.15)
console = Console(stderr=True)


def main() -> int:
    options = _parser().parse_args()
    # So that servers are stopped and their data removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.list:
        print(*PAIRED, *ALONE, sep="\n")
        return 0
    try:
        contestants = _contestants(options)
    except KafkaUnavailable as missing:
        console.print(f"{missing}. With --no-kafka the figures of Penstock alone can be had.")
        return 2
    began = time.strftime("%Y%m%d-%H%M%S")
    with _progress() as status:
        context = Context(
            options.rounds or (3 if options.quick else 5),
            0 if options.fresh else options.warm_ups,
            options.quick,
            contestants,
            status.update,
            options.fresh,
        )
        rows = run(context, options.only or [*PAIRED, *ALONE])
    shown = {
        "rounds": context.rounds,
        "warm_ups": context.warm_ups,
        "quick": context.quick,
        "fresh": context.fresh,
    }
    write_json(BUILD / "bench" / f"{began}.json", rows, shown)
    print(machine(), markdown(rows), sep="\n\n")
    return 0


def run(context: Context, names: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    paired = [name for name in PAIRED if name in names]
    if paired:
        with context.servers() as servers:
            for name in paired:
                rows += _finished(PAIRED[name](context, servers))
            rows += _finished([_memory(servers)])
    for name in (name for name in ALONE if name in names):
        rows += _finished(ALONE[name](context))
    return rows


def _memory(servers: Sequence[Server]) -> Row:
    ours, *theirs = [rss_mb(server.pid) for server in servers]
    kafka = Spread.of(theirs) if theirs else None
    ratio = Spread.of([ours / theirs[0]]) if theirs else None
    return Row("memory after the run", "resident", "MB", Spread.of([ours]), kafka, ratio, MEMORY_BAR)


def _finished(rows: list[Row]) -> list[Row]:
    """Show rows as soon as they are there: a long run that is broken off has said what it found."""
    console.print(markdown(rows).partition("\n")[2].partition("\n")[2], highlight=False, soft_wrap=True)
    return rows


def _contestants(options: argparse.Namespace) -> tuple[type[Penstock | Kafka], ...]:
    if options.no_kafka:
        return (Penstock,)
    console.print("Kafka's jars: fetched once by Maven into build/kafka")
    kafka_libs()
    return (Control if options.control else Penstock, Kafka)


@contextmanager
def _progress() -> Iterator[Status]:
    with console.status("starting") as status:
        yield status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=[*PAIRED, *ALONE], metavar="NAME", help="these scenarios"
    )
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--rounds", type=int, help="rounds a scenario (5, quick: 3)")
    parser.add_argument("--warm-ups", type=int, default=2, help="unmeasured rounds before them (2)")
    parser.add_argument("--quick", action="store_true", help="less work in each round")
    parser.add_argument("--fresh", action="store_true", help="start the servers anew for every measurement")
    parser.add_argument("--no-kafka", action="store_true", help="Penstock alone; needs no Java")
    parser.add_argument("--control", action="store_true", help="Kafka in Penstock's place: ratios near 1")
    return parser


if __name__ == "__main__":
    sys.exit(main())
