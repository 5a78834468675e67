"""Share groups beside RabbitMQ, NATS and Redis: messages that are confirmed, consumed and acknowledged one by one.

Durability is compared with the same: quorum queues of RabbitMQ with `durability=fsync`, the defaults of NATS and Redis
with `durability=os`. All clients are raw connections of the same program.
"""

from __future__ import annotations

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import Spread
from bench.peers import PEERS, Nats, Peer, RabbitMq, Redis
from bench.scenarios.shares import SETTINGS, SIZE
from bench.servers import Penstock, Server

TARGETS: dict[type[Peer], float] = {RabbitMq: 5.0, Nats: 5.0, Redis: 2.0}
PUBLISH_P50_US = 253.0
PROTOCOLS = {"messages of batches": "kafka-batches", "messages in batches of one": "kafka"}


def one_by_one(context: Context) -> list[Row]:
    rows: list[Row] = []
    for peer in PEERS:
        if peer.is_installed():
            rows += _beside(context, peer)
        else:
            rows.append(
                Row(f"queue beside {peer.name}", f"skipped: {peer.program} is not installed", "", None)
            )
    return rows


def _beside(context: Context, peer: type[Peer]) -> list[Row]:
    theirs: list[Figures] = []
    ours: dict[str, list[Figures]] = {label: [] for label in PROTOCOLS}
    durability = "fsync" if peer.durability == "fsync" else "os"
    for number in range(context.rounds):
        context.say(f"queue beside {peer.name}: round {number + 1} of {context.rounds}")
        with peer() as server:
            theirs.append(_measure(context, server, peer.protocol))
        for label, protocol in PROTOCOLS.items():
            with Penstock(durability=durability, settings=SETTINGS) as server:
                ours[label].append(_measure(context, server, protocol))
    name = f"queue beside {peer.name} ({peer.durability})"
    rate = Spread.of([each["per_s"] for each in theirs])
    rows = [
        Row(
            name,
            f"{label}, beside {rate.median:,.0f}/s",
            "/s",
            Spread.of([each["per_s"] for each in found]),
            ratio=Spread.of(
                [our["per_s"] / their["per_s"] for our, their in zip(found, theirs, strict=True)]
            ),
            bar=Bar("ratio", "at least", TARGETS[peer]),
        )
        for label, found in ours.items()
    ]
    cpu = Spread.of([each["cpu_us"] for each in theirs])
    for label, found in ours.items():
        shown = f"{label}, server CPU with publishing, beside {cpu.median:.0f} us"
        rows.append(Row(name, shown, "us/message", Spread.of([each["cpu_us"] for each in found])))
    publish = Spread.of([each["publish_p50_us"] for each in theirs])
    single = [each["publish_p50_us"] for each in ours["messages in batches of one"]]
    bar = Bar("value", "at most", PUBLISH_P50_US) if durability == "os" else None
    shown = f"confirmed publish p50, beside {publish.median:.0f} us"
    return [*rows, Row(name, shown, "us", Spread.of(single), bar=bar)]


def _measure(context: Context, server: Server, protocol: str) -> Figures:
    count = context.scaled(100_000, 20_000)
    load = {"count": count, "synchronous": context.scaled(5_000, 1_000), "size": SIZE}
    before = server.cpu_seconds()
    found = run_driver("peer_queues", protocol=protocol, port=server.port, **load)
    return found | {"cpu_us": (server.cpu_seconds() - before) / count * 1e6}
