"""Views beside consuming everything and filtering in the client; and a filter on JSON beside a synchronous producer."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, finish_driver, run_driver, start_driver
from bench.measure import Spread
from bench.servers import Penstock
from bench.topics import TIMEOUT_S, create_topic, delete_topic

NAME = "views"
SIZE = 1_024
PARTITIONS = 4
FILTERS = {"header": 'headers.region == "eu"', "json": 'json.user.region == "eu" && json.total >= 0'}
LOWEST = 19


def beside_client_filters(context: Context) -> list[Row]:
    """Read the wanted hundredth: everything filtered by the client, a view for the first time, and again."""
    rows: list[Row] = []
    count = context.scaled(1_000_000, 300_000)
    with Penstock() as server:
        for codec in ("none", "lz4"):
            topic = f"orders-{codec}"
            create_topic(server, topic, PARTITIONS)
            context.say(f"{NAME}: writing {count} messages, {codec}")
            _write(server, topic, count, codec)
            found: dict[str, list[Figures]] = {"all": [], "first": [], "again": []}
            for number in range(context.rounds):
                context.say(f"{NAME}: {codec}, round {number + 1} of {context.rounds}")
                found["all"].append(_read(server, topic, is_view=False))
                view = _create_view(server, topic, "header", number)
                found["first"].append(_read(server, view, is_view=True))
                found["again"].append(_read(server, view, is_view=True))
                delete_topic(server, view)
            rows += _compared("plain" if codec == "none" else codec, found)
    return rows


def json_filter(context: Context) -> list[Row]:
    """Scan with a filter on JSON values, and send one message at a time to another topic meanwhile."""
    count = context.scaled(1_000_000, 300_000)
    scans: list[Figures] = []
    quiet: list[Figures] = []
    beside: list[Figures] = []
    with Penstock() as server:
        create_topic(server, "documents", PARTITIONS)
        create_topic(server, "other", 1)
        context.say("view-json: writing")
        _write(server, "documents", count, "none", as_json=True, size=300)
        for number in range(context.rounds):
            context.say(f"view-json: round {number + 1} of {context.rounds}")
            alone = _create_view(server, "documents", "json", 2 * number)
            scans.append(_read(server, alone, is_view=True))
            quiet.append(_synchronous(server))
            view = _create_view(server, "documents", "json", 2 * number + 1)
            reader = start_driver(
                "wanted_consume",
                nice=LOWEST,
                bootstrap=server.bootstrap,
                topic=view,
                partitions=PARTITIONS,
                is_view=True,
            )
            beside.append(_synchronous(server))
            finish_driver("wanted_consume", reader)
            for name in (alone, view):
                delete_topic(server, name)
    rate = [count / each["seconds"] for each in scans]
    ratio = [noisy["p99_ms"] / calm["p99_ms"] for noisy, calm in zip(beside, quiet, strict=True)]
    return [
        Row("view-json", "records scanned", "/s", Spread.of(rate), bar=Bar("value", "at least", 80_000)),
        Row("view-json", "synchronous p99, quiet", "ms", Spread.of([each["p99_ms"] for each in quiet])),
        Row("view-json", "synchronous p99, beside", "ms", Spread.of([each["p99_ms"] for each in beside])),
        Row("view-json", "p99, times quiet", "x", Spread.of(ratio), bar=Bar("value", "at most", 2.0)),
    ]


def _compared(codec: str, found: dict[str, list[Figures]]) -> list[Row]:
    def ratio(kind: str, key: str) -> Spread:
        return Spread.of(
            [view[key] / whole[key] for view, whole in zip(found[kind], found["all"], strict=True)]
        )

    name = f"{NAME}, {codec}"
    rate = Spread.of([each["per_s"] for each in found["all"]])
    share = Spread.of([100 * each for each in _shares(found)])
    return [
        Row(name, "filtered by the client", "wanted/s", rate),
        Row(name, "first reader, times that", "x", ratio("first", "per_s"), bar=Bar("value", "at least", 5)),
        Row(
            name,
            "further readers, times that",
            "x",
            ratio("again", "per_s"),
            bar=Bar("value", "at least", 30),
        ),
        Row(name, "bytes received, of all", "%", share, bar=Bar("value", "at most", 3)),
    ]


def _shares(found: dict[str, list[Figures]]) -> list[float]:
    return [
        view["rx_bytes"] / whole["rx_bytes"] for view, whole in zip(found["again"], found["all"], strict=True)
    ]


def _write(
    server: Penstock, topic: str, count: int, codec: str, *, as_json: bool = False, size: int = SIZE
) -> None:
    load = {"count": count, "size": size, "as_json": as_json, "codec": codec}
    run_driver("marked_produce", bootstrap=server.bootstrap, topic=topic, **load)


def _read(server: Penstock, topic: str, *, is_view: bool) -> Figures:
    return run_driver(
        "wanted_consume", bootstrap=server.bootstrap, topic=topic, partitions=PARTITIONS, is_view=is_view
    )


def _synchronous(server: Penstock) -> Figures:
    return run_driver("synchronous", bootstrap=server.bootstrap, topic="other", count=2_000, size=100)


def _create_view(server: Penstock, topic: str, kind: str, number: int) -> str:
    name = f"{topic}.view-{number}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 4})
    config = {"view.of": topic, "view.filter": FILTERS[kind]}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(TIMEOUT_S)
    return name
