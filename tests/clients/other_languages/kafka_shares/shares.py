"""Kafka's own tools for share groups: arguments are the bootstrap servers and a name for the topic.

The console share consumer, kafka-share-groups (list, describe, reset, delete), VerifiableShareConsumer and the
performance tool of share consumers, one after the other.
"""

from __future__ import annotations

import json
import subprocess
import sys

JAVA = ("java", "-Xmx256m", "-cp", "jars/*")
TOOLS = "org.apache.kafka.tools."
COMMAND = TOOLS + "consumer.group.ShareGroupCommand"
RECORDS = 300
PATIENCE_S = 120


def run(main: str, *arguments: str, text: str | None = None) -> str:
    """Output of a tool; an error if it fails."""
    done = subprocess.run(
        [*JAVA, main, *arguments], input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"{main} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Cluster:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.place = ("--bootstrap-server", bootstrap)
        self.topic = topic

    def prepare(self) -> None:
        create = ("--create", "--topic", self.topic, "--partitions", "3", "--replication-factor", "3")
        run(TOOLS + "TopicCommand", *self.place, *create)
        self.produce(range(RECORDS))

    def produce(self, numbers: range) -> None:
        values = "".join(f"{number}\n" for number in numbers)
        run(TOOLS + "ConsoleProducer", *self.place, "--topic", self.topic, text=values)

    def begin(self, group: str) -> None:
        """Let a group start at the oldest record."""
        entity = ("--entity-type", "groups", "--entity-name", group)
        change = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
        run("kafka.admin.ConfigCommand", *self.place, *entity, *change)

    def consume(self, group: str, *more: str, count: int = RECORDS) -> list[int]:
        """Numbers that the console share consumer prints."""
        limits = ("--max-messages", str(count), "--timeout-ms", "60000")
        main = TOOLS + "consumer.ConsoleShareConsumer"
        output = run(main, *self.place, "--topic", self.topic, "--group", group, *limits, *more)
        return sorted(int(line) for line in output.split() if line.isdigit())

    def command(self, *arguments: str) -> str:
        return run(COMMAND, *self.place, *arguments)

    def lags(self, group: str) -> list[int]:
        """Lag of each partition, as `--describe` shows it."""
        lines = self.command("--describe", "--group", group).splitlines()
        rows = [line.split() for line in lines if line.startswith(group)]
        [head] = [line.split() for line in lines if line.startswith("GROUP")]
        return [int(row[head.index("LAG")]) for row in rows]


def console_consumer(cluster: Cluster) -> None:
    cluster.begin("console")
    found = cluster.consume("console")
    assert found == list(range(RECORDS)), f"the console consumer printed {len(found)} of {RECORDS}"
    cluster.begin("rejecting")
    assert len(cluster.consume("rejecting", "--reject", count=10)) == 10
    print("ConsoleShareConsumer: accepts and rejects")


def share_groups(cluster: Cluster) -> None:
    assert "console" in cluster.command("--list").split()
    state = cluster.command("--describe", "--group", "console", "--state")
    assert "Empty" in state, state
    assert sum(cluster.lags("console")) == 0
    reset = ("--reset-offsets", "--group", "console", "--topic", cluster.topic)
    dry = cluster.command(*reset, "--to-earliest", "--dry-run")
    assert cluster.topic in dry, dry
    assert sum(cluster.lags("console")) == 0
    cluster.command(*reset, "--to-earliest", "--execute")
    assert sum(cluster.lags("console")) == RECORDS
    assert cluster.consume("console") == list(range(RECORDS))
    cluster.command("--delete-offsets", "--group", "console", "--topic", cluster.topic)
    cluster.command("--delete", "--group", "console")
    assert "console" not in cluster.command("--list").split()
    print("kafka-share-groups: lists, describes, resets and deletes")


def verifiable_consumer(cluster: Cluster) -> None:
    limits = (
        "--max-messages",
        str(RECORDS),
        "--acknowledgement-mode",
        "sync",
        "--offset-reset-strategy",
        "earliest",
    )
    main, names = TOOLS + "VerifiableShareConsumer", ("--topic", cluster.topic, "--group-id", "verifiable")
    output = run(main, *cluster.place, *names, *limits)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    counts = [event["count"] for event in events if event["name"] == "offsets_acknowledged"]
    assert sum(counts) == RECORDS, counts
    print(f"VerifiableShareConsumer: {sum(counts)} records are acknowledged")


def performance(cluster: Cluster) -> None:
    cluster.begin("perf")
    main, names = TOOLS + "ShareConsumerPerformance", ("--topic", cluster.topic, "--group", "perf")
    output = run(main, *cluster.place, *names, "--num-records", str(RECORDS), "--timeout", "60000")
    assert str(RECORDS) in output, output
    print(f"ShareConsumerPerformance: {output.splitlines()[-1]}")


def main(bootstrap: str, topic: str) -> None:
    cluster = Cluster(bootstrap, topic)
    cluster.prepare()
    console_consumer(cluster)
    share_groups(cluster)
    verifiable_consumer(cluster)
    performance(cluster)


if __name__ == "__main__":
    main(*sys.argv[1:3])
