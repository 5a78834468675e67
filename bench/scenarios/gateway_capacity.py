"""The capacity of the specification by HTTP: a billion messages per day to ten million users on three brokers,
and a surge to ten times that rate.

Every tenth message goes to one of a thousand users with a long poll. The processor time of a message in
gateways and brokers gives the number of cores for both rates, also where the machine is too small for them.
"""

from __future__ import annotations

from bench.clusters import DefaultPenstockCluster, PenstockCluster
from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures
from bench.gateways import Gateway
from bench.mailbox_load import MailboxLoad, cores_for, run_load
from bench.scenarios.gateway import SENDING, WARM_UP_S, Shown, rows_of

RATE = 11_574
USER_IDS = 10_000_000
WATCHED = 0.1
SURGE = 10
WORKERS = 2
NONE = Bar("value", "at most", 0.0)
_CORES: Shown = (
    ("gateway_cores_needed", f"cores of gateways for {RATE:,} messages/s", "cores", None),
    ("broker_cores_needed", f"cores of brokers for {RATE:,} messages/s", "cores", None),
    ("surge_gateway_cores_needed", f"cores of gateways for {SURGE} times that", "cores", None),
    ("surge_broker_cores_needed", f"cores of brokers for {SURGE} times that", "cores", None),
)


def seed(context: Context) -> list[Row]:
    """One round, because the measurement is long."""
    end_s = WARM_UP_S + context.scaled(600, 20)
    load = MailboxLoad([(end_s, RATE)], {"paced": (WARM_UP_S, end_s)}, USER_IDS, WATCHED)
    shown: Shown = (
        ("paced_arrival_p50_ms", "end to end of the users who wait, p50", "ms", None),
        (
            "paced_arrival_p99_ms",
            "end to end of the users who wait, p99",
            "ms",
            Bar("value", "at most", 100.0),
        ),
        *SENDING,
        *_CORES,
    )
    name = f"HTTP, 3 brokers: {RATE:,} x 1 KB/s over {USER_IDS:,} users"
    return rows_of(context, name, shown, lambda durability: _measure(durability, load, "paced"), rounds=1)


def surge(context: Context) -> list[Row]:
    """One round, because the measurement is long. A quick one uses a tenth of the rates."""
    rate = context.scaled(RATE, RATE // 10)
    before_s, surge_s, after_s = WARM_UP_S + 10, context.scaled(60, 10), 40
    surge_end_s = before_s + surge_s
    load = MailboxLoad(
        [(before_s, rate), (surge_s, SURGE * rate), (after_s, rate)],
        {
            "before": (WARM_UP_S, before_s),
            "surge": (before_s, surge_end_s),
            "after": (surge_end_s, surge_end_s + after_s),
        },
        USER_IDS,
        WATCHED,
        drivers=context.scaled(4, 1),
    )
    shown: Shown = (
        ("unsent", "not acknowledged after 10 s", "messages", NONE),
        ("errors", "errors", "", NONE),
        ("lost", "acknowledged, but not received", "messages", NONE),
        ("before_ack_p99_ms", "acknowledged before, p99", "ms", Bar("value", "at most", 100.0)),
        ("surge_messages_per_s", "acknowledged in the surge", "messages/s", None),
        ("surge_ack_p99_ms", "acknowledged in the surge, p99", "ms", None),
        ("after_settled_s", "p99 below 100 ms again after", "s", Bar("value", "at most", 30.0)),
        ("surge_gateway_us", "CPU of the gateway for a message in the surge", "us", None),
        ("surge_brokers_us", "CPU of the brokers for a message in the surge", "us", None),
        *_CORES,
    )
    name = f"HTTP, 3 brokers: {surge_s} s at {SURGE} times {rate:,} x 1 KB/s"
    return rows_of(context, name, shown, lambda durability: _measure(durability, load, "surge"), rounds=1)


def _measure(durability: str, load: MailboxLoad, window: str) -> Figures:
    make = PenstockCluster if durability == "os" else DefaultPenstockCluster
    with make() as cluster, Gateway(cluster, workers=WORKERS) as gateway:
        figures = run_load(load, gateway, cluster)
    gateways, brokers = cores_for(figures, window, RATE)
    return figures | {
        "gateway_cores_needed": gateways,
        "broker_cores_needed": brokers,
        "surge_gateway_cores_needed": SURGE * gateways,
        "surge_broker_cores_needed": SURGE * brokers,
    }
