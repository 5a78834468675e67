"""Time without writes after SIGKILL of a leading broker, and after SIGSTOP; time without deliveries of a share group.

Every second victim is the controller, if the cluster reports it. A partition resumes when it acknowledges a
write that was sent after the loss; the figure is the last partition of the victim.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from confluent_kafka.admin import AdminClient

from bench.clusters import Cluster
from bench.comparison import DEFAULT, KAFKA, Bar, Metric, Row, row_of
from bench.context import Context
from bench.steady_share_reader import SteadyShareReader
from bench.steady_writer import SteadyWriter
from bench.topics import create_topic, wait_for_copies

PARTITIONS = 12
TOPIC = "kept"
TIMEOUT_S = 60
SESSION_S = 6.0
KILLED = "3 brokers: kill -9 of a leader"
SHARES = "3 brokers: kill -9 of a leader of a share group"
SILENT = "3 brokers: a leader falls silent"
SOON = Bar("value", "at most", 1.5)
AFTER_SESSION = Bar("value", "at most", SESSION_S + 2)
EVERY = Metric("resumed_s", "writes resume", "s")
CONTROLLERS = Metric("controllers", "of them the controller", "")


@dataclass(frozen=True, slots=True)
class Loss:
    resumed_s: float
    was_controller: bool


Losses = Mapping[str, Sequence[Loss]]


def killed(context: Context) -> list[Row]:
    counts = {KAFKA: context.scaled(3, 1), DEFAULT: context.scaled(10, 2)}
    losses = _lose(context, KILLED, context.scaled(30, 6), counts, _kill)
    controllers = {
        name: [loss for loss in found if loss.was_controller]
        for name, found in losses.items()
        if name != KAFKA
    }
    return [
        row_of(KILLED, EVERY, _times(losses)),
        _longest(KILLED, "longest", losses, SOON),
        _longest(KILLED, "longest, of the controller", controllers, SOON),
        row_of(KILLED, CONTROLLERS, {name: [float(len(found))] for name, found in controllers.items()}),
    ]


def silent(context: Context) -> list[Row]:
    losses = _lose(context, SILENT, context.scaled(3, 1), {KAFKA: 1, DEFAULT: 1}, _silence)
    return [_longest(SILENT, "longest", losses, AFTER_SESSION)]


def shares_killed(context: Context) -> list[Row]:
    """A share group with one consumer: messages that are sent after the loss are delivered again."""
    counts = {KAFKA: context.scaled(3, 1), DEFAULT: context.scaled(10, 2)}
    losses = _lose(context, SHARES, context.scaled(10, 4), counts, _kill, of_deliveries=True)
    longest = {name: [max(times)] for name, times in _times(losses).items() if times}
    return [
        row_of(SHARES, Metric("resumed_s", "deliveries resume", "s"), _times(losses)),
        row_of(SHARES, Metric("resumed_s", "deliveries resume, longest", "s", SOON), longest),
    ]


def _lose(
    context: Context,
    scenario: str,
    count: int,
    counts: Mapping[str, int],
    lose: Callable[[Cluster, int, Callable[[float], float]], float],
    *,
    of_deliveries: bool = False,
) -> Losses:
    """Losses of each cluster, one cluster at a time; `counts` has numbers that differ from the default.

    `of_deliveries` waits for the messages at a share consumer, not for their acknowledgements to the producer.
    """
    found: dict[str, list[Loss]] = {}
    for make in context.contestants:
        with make() as cluster:
            assert isinstance(cluster, Cluster)
            create_topic(cluster, TOPIC, PARTITIONS)
            with ExitStack() as stack:
                place = cluster.bootstrap, TOPIC, PARTITIONS
                watcher: SteadyWriter | SteadyShareReader = stack.enter_context(SteadyWriter(*place))
                if of_deliveries:
                    watcher = stack.enter_context(SteadyShareReader(*place))
                amount = counts.get(cluster.name, count)
                for number in range(amount):
                    context.say(f"{scenario}: {number + 1} of {amount}, {cluster.name}")
                    victim, led, was_controller = _choose(cluster, number)
                    resumed_s = lose(cluster, victim, partial(watcher.resumed, led))
                    found.setdefault(cluster.name, []).append(Loss(resumed_s, was_controller))
    return found


def _choose(cluster: Cluster, number: int) -> tuple[int, list[int], bool]:
    """A leading broker, the partitions it leads, and whether it is the controller."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wait_for_copies(admin, TOPIC, PARTITIONS, cluster.copies)
    told = admin.list_topics(TOPIC, timeout=TIMEOUT_S)
    led: dict[int, list[int]] = {}
    for partition in told.topics[TOPIC].partitions.values():
        led.setdefault(partition.leader, []).append(partition.id)
    others = [node_id for node_id in sorted(led) if node_id != told.controller_id]
    is_controller = told.controller_id in led and (number % 2 == 0 or not others)
    victim = told.controller_id if is_controller else others[number // 2 % len(others)]
    return victim, led[victim], is_controller


def _kill(cluster: Cluster, victim: int, resumed: Callable[[float], float]) -> float:
    since = time.perf_counter()
    cluster.kill(victim)
    taken_s = resumed(since)
    cluster.restart(victim)
    return taken_s


def _silence(cluster: Cluster, victim: int, resumed: Callable[[float], float]) -> float:
    pid = cluster.pid(victim)
    since = time.perf_counter()
    os.kill(pid, signal.SIGSTOP)
    try:
        return resumed(since)
    finally:
        os.kill(pid, signal.SIGCONT)


def _times(losses: Losses) -> dict[str, list[float]]:
    return {name: [loss.resumed_s for loss in found] for name, found in losses.items()}


def _longest(scenario: str, label: str, losses: Losses, bar: Bar) -> Row:
    longest = {name: [max(times)] for name, times in _times(losses).items() if times}
    return row_of(scenario, Metric("resumed_s", f"writes resume, {label}", "s", bar), longest)
