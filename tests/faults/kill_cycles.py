"""`kill -9` under load at random moments, in blocks of cycles on one data directory, each checked at its end.

`make kill-cycles CYCLES=200` runs this file, with BROKERS=3 on a cluster. The run records each finished
block, so that an interrupted run continues. A failing block prints its seed and keeps its data directories.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster_kills import run_cluster_block
from confluent_kafka.admin import AdminClient, NewTopic
from kill_block import SETTINGS, BlockResult, run_blocks
from writers import Writer, read_all

from support.broker_process import BrokerProcess

TOPIC = "kills"
PARTITIONS = 3
WRITERS = 4
CYCLES_A_BLOCK = 20
LONGEST_LIFE_S = 1.5


def run_block(directory: Path, seed: int, cycles: int, say: Callable[[str], None]) -> BlockResult:
    """Start, write, kill and restart `cycles` times; then read everything and check it."""
    source = random.Random(seed)
    broker = BrokerProcess(directory, source.choice(SETTINGS))
    broker.start()
    try:
        _create_topic(broker)
        writers = [Writer(number, broker.bootstrap, TOPIC, PARTITIONS) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for cycle in range(cycles):
            say(f"seed {seed}: cycle {cycle + 1} of {cycles}")
            _live_and_die(broker, source)
        broker.start()
        return _judge(broker, writers, cycles)
    finally:
        broker.kill()


def _live_and_die(broker: BrokerProcess, source: random.Random) -> None:
    """Kill most runs while they serve, and some while they start."""
    if not broker.running:
        broker.spawn()
        if source.random() < 0.8:
            broker.wait_until_ready()
    time.sleep(source.random() * LONGEST_LIFE_S)
    broker.kill()


def _judge(broker: BrokerProcess, writers: Sequence[Writer], cycles: int) -> BlockResult:
    for writer in writers:
        writer.stop()
    stored = list(read_all(broker.bootstrap, TOPIC, PARTITIONS))
    violations: list[str] = []
    for number, writer in enumerate(writers):
        mine = [message for message in stored if message.sent.producer == number]
        violations += [*writer.history.refused, *writer.history.violations(mine)]
    acknowledged = sum(len(writer.history.acknowledged) for writer in writers)
    if not acknowledged:
        violations.append("nothing was acknowledged: the block has tested nothing")
    broker.stop()
    return BlockResult(cycles, acknowledged, len(stored), tuple(violations))


def _create_topic(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    # Small segments, so that kills hit segment rolls as well as appends.
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": str(1 << 20)})
    admin.create_topics([topic])[TOPIC].result(30)


def main() -> int:
    options = _parser().parse_args()
    brokers: int = options.brokers

    def block(directory: Path, seed: int, cycles: int, say: Callable[[str], None]) -> BlockResult:
        if brokers > 1:
            return run_cluster_block(directory, seed, cycles, say, brokers)
        return run_block(directory, seed, cycles, say)

    code = run_blocks(
        block, options.state / str(brokers), options.cycles, CYCLES_A_BLOCK, options.seed, "kills"
    )
    if not code and brokers > 1:
        print("what was read and committed is kept, copies are byte-identical")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, default=Path("build/kill-cycles"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
