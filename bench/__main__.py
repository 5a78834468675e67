"""`python -m bench`: run scenarios, print a Markdown table, write build/bench/<name>.json."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from bench.clusters import ControlCluster, DefaultPenstockCluster, KafkaCluster, PenstockCluster
from bench.commits import near, other_commit
from bench.comparison import Bar, Metric, Row, row_of
from bench.context import Context
from bench.kafka_install import BUILD, KafkaUnavailable, kafka_libs
from bench.report import KAFKA, machine, markdown, write_json
from bench.scenarios import ONE_BROKER, THREE_BROKERS, Scenarios
from bench.servers import Control, DefaultPenstock, Kafka, Penstock
from bench.target import Target

console = Console(stderr=True)
PLAIN_TOPICS = ("produce-1k", "produce-lz4", "produce-raw", "consume-1k")


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    scenarios = THREE_BROKERS if options.cluster else ONE_BROKER
    names = _names(parser, options, scenarios)
    # Stop the servers and remove their data also after SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.list:
        print(*scenarios.names, sep="\n")
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
            () if options.cluster or options.no_default or options.against else (DefaultPenstock,),
        )
        rows = run(context, scenarios, names)
    if options.against:
        rows = [near(row) for row in rows]
    shown = {
        "rounds": context.rounds,
        "warm_ups": context.warm_ups,
        "quick": context.quick,
        "fresh": context.fresh,
    }
    write_json(BUILD / "bench" / f"{began}.json", rows, shown)
    print(machine(), markdown(rows, options.against or KAFKA), sep="\n\n")
    return 0


def _names(
    parser: argparse.ArgumentParser, options: argparse.Namespace, scenarios: Scenarios
) -> Sequence[str]:
    """Names of the scenarios to run; ends the process where they cannot be run."""
    names: Sequence[str] = options.only or (PLAIN_TOPICS if options.against else scenarios.names)
    if unknown := set(names) - set(scenarios.names):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; --list has their names")
    if options.against and (options.cluster or set(names) - set(scenarios.paired)):
        parser.error("--against measures paired scenarios of one broker")
    return names


def run(context: Context, scenarios: Scenarios, names: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    paired = [name for name in scenarios.paired if name in names]
    if paired:
        with context.servers(*context.beside) as servers:
            for name in paired:
                rows += _finished(scenarios.paired[name](context, servers))
            rows += _finished([_memory(servers, scenarios.memory_bar)])
    for name in (name for name in scenarios.alone if name in names):
        rows += _finished(scenarios.alone[name](context))
    return rows


def _memory(servers: Sequence[Target], bar: Bar) -> Row:
    metric = Metric("rss_mb", "resident", "MB", bar)
    return row_of("memory after the run", metric, {server.name: [server.rss_mb()] for server in servers})


def _finished(rows: list[Row]) -> list[Row]:
    """Print rows as soon as they are measured, so that an interrupted run shows its results."""
    console.print(markdown(rows).partition("\n")[2].partition("\n")[2], highlight=False, soft_wrap=True)
    return rows


def _contestants(options: argparse.Namespace) -> tuple[Callable[..., Target], ...]:
    if not (options.no_kafka or options.against):
        console.print("Kafka's jars: fetched once by Maven into build/kafka")
        kafka_libs()
    if options.against:
        return (Penstock, other_commit(options.against))
    if options.cluster:
        ours: Callable[..., Target] = ControlCluster if options.control else PenstockCluster
        beside = () if options.no_kafka else (KafkaCluster,)
        return (ours, *beside, *(() if options.no_default else (DefaultPenstockCluster,)))
    if options.no_kafka:
        return (Penstock,)
    return (Control if options.control else Penstock, Kafka)


@contextmanager
def _progress() -> Iterator[Status]:
    with console.status("starting") as status:
        yield status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="three brokers beside three of Kafka")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these scenarios")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--rounds", type=int, help="rounds a scenario (5, quick: 3)")
    parser.add_argument("--warm-ups", type=int, default=2, help="unmeasured rounds before them (2)")
    parser.add_argument("--quick", action="store_true", help="less work in each round")
    parser.add_argument("--fresh", action="store_true", help="start the servers anew for every measurement")
    parser.add_argument("--no-kafka", action="store_true", help="Penstock alone; needs no Java")
    parser.add_argument("--no-default", action="store_true", help="page-cache durability only")
    parser.add_argument(
        "--against", metavar="COMMIT", help="another commit in Kafka's place: plain topics within 2 %%"
    )
    parser.add_argument("--control", action="store_true", help="Kafka in Penstock's place: ratios near 1")
    return parser


if __name__ == "__main__":
    sys.exit(main())
