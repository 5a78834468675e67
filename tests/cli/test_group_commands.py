"""`penstock group` and `penstock consume --group` against a real broker, on each event loop."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.cli.main import run
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import TcpNetwork
from support.broker_process import Address
from support.eventually import eventually

STARTED_MS = 1_700_000_000_000
PATIENCE_S = 30
FIND_COORDINATOR, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP = 10, 11, 13, 14


@pytest.fixture
def penstock(
    broker: Address, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Penstock:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    return Penstock(capfdbinary)


class Penstock:
    """Runs CLI commands in this process."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, *arguments: str) -> str:
        """Run a command and return its output; an error fails the test."""
        code = run(arguments)
        shown = self._captured.readouterr()
        assert code == 0, shown.err.decode()
        return shown.out.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1) -> str:
        """Run a command that must fail, and return its error output."""
        assert run(arguments) == code
        return self._captured.readouterr().err.decode()


@pytest.fixture
def topic(penstock: Penstock, topic_name: str, tmp_path: Any) -> str:
    """A topic with two partitions, and ten records in partition 0, one per second."""
    penstock("topic", "create", topic_name, "--partitions", "2")
    lines = (
        json.dumps({"value": str(number), "timestamp": STARTED_MS + number * 1_000, "partition": 0})
        for number in range(10)
    )
    file = tmp_path / "records.json"
    file.write_text("\n".join(lines) + "\n")
    penstock("produce", topic_name, str(file), "--format", "json")
    return topic_name


@pytest.fixture
def group(topic_name: str) -> str:
    return f"group-of-{topic_name}"


def _heed_interrupts() -> None:
    """Restore the default SIGINT: a background shell ignores it, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def member(broker: Address, topic: str, group: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `penstock consume --group --follow` as a process that ends with the test."""
    command = [sys.executable, "-m", "penstock.cli.main", "consume", topic, "--group", group, "--follow"]
    process = subprocess.Popen(
        [*command, "-b", broker.bootstrap, *more],
        stdout=subprocess.PIPE,
        preexec_fn=_heed_interrupts,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def offsets(described: dict[str, Any]) -> dict[int, tuple[int | None, int | None]]:
    return {each["partition"]: (each["committed_offset"], each["lag"]) for each in described["partitions"]}


def test_group_resumes_after_its_last_message(penstock: Penstock, topic: str, group: str) -> None:
    assert penstock("consume", topic, "--group", group, "--max", "4").split() == ["0", "1", "2", "3"]
    assert penstock("consume", topic, "--group", group).split() == [str(n) for n in range(4, 10)]
    assert penstock("consume", topic, "--group", group) == ""


def test_a_new_group_can_begin_at_the_end(penstock: Penstock, topic: str, group: str) -> None:
    assert penstock("consume", topic, "--group", group, "--from", "end") == ""


def test_the_list_shows_members_topics_and_lag(
    penstock: Penstock, broker: Address, topic: str, group: str
) -> None:
    penstock("consume", topic, "--group", group, "--max", "4")
    listed = {each["group"]: each for each in penstock.json("group", "list")}
    expected = {
        "group": group,
        "type": "classic",
        "state": "empty",
        "members": 0,
        "topics": [topic],
        "lag": 6,
    }
    assert listed[group] == expected
    with member(broker, topic, group) as process:
        assert read_lines(process, 6)[-1] == b"9\n"
        listed = {each["group"]: each for each in penstock.json("group", "list")}
        assert (listed[group]["state"], listed[group]["members"]) == ("stable", 1)
    assert group in penstock("group", "list")


def test_lag_counts_partitions_without_a_commit_from_their_log_start(
    penstock: Penstock, topic: str, group: str, tmp_path: Any
) -> None:
    penstock("consume", topic, "--group", group, "--max", "4")
    file = tmp_path / "more.json"
    file.write_text("".join(json.dumps({"value": "more", "partition": 1}) + "\n" for _ in range(5)))
    penstock("produce", topic, str(file), "--format", "json")
    penstock("topic", "truncate", topic, "--partition", "1", "--before-offset", "2", "--yes")
    described = penstock.json("group", "describe", group)
    assert offsets(described) == {0: (4, 6), 1: (None, 3)}
    assert described["lag"] == 9
    assert {each["group"]: each["lag"] for each in penstock.json("group", "list")}[group] == 9


def test_a_description_tells_members_offsets_and_owners(
    penstock: Penstock, broker: Address, topic: str, group: str
) -> None:
    penstock("consume", topic, "--group", group, "--max", "4")
    assert offsets(penstock.json("group", "describe", group)) == {0: (4, 6), 1: (None, 0)}
    with member(broker, topic, group) as process:
        read_lines(process, 6)
        described = penstock.json("group", "describe", group)
        (only,) = described["members"]
        assert only["client_id"] == "penstock-cli"
        assert [each["owner"] for each in described["partitions"]] == [only["member_id"]] * 2
        assert only["member_id"] in penstock("group", "describe", group)


def test_an_interrupted_member_commits_and_leaves(
    penstock: Penstock, broker: Address, topic: str, group: str
) -> None:
    with member(broker, topic, group) as process:
        read_lines(process, 10)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    described = penstock.json("group", "describe", group)
    assert described["state"] == "empty"
    assert offsets(described)[0] == (10, 0)


def test_a_reset_is_only_shown_until_it_is_to_be_executed(penstock: Penstock, topic: str, group: str) -> None:
    penstock("consume", topic, "--group", group)
    arguments = ("group", "reset", group, "--topic", topic, "--to-earliest")
    planned = penstock.json(*arguments)
    assert planned["executed"] is False
    assert {each["partition"]: (each["old"], each["new"]) for each in planned["partitions"]}[0] == (10, 0)
    assert offsets(penstock.json("group", "describe", group))[0] == (10, 0)
    assert penstock.json(*arguments, "--execute")["executed"] is True
    assert offsets(penstock.json("group", "describe", group))[0] == (0, 10)
    assert len(penstock("consume", topic, "--group", group).split()) == 10


@pytest.mark.parametrize(
    ("aim", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "7"), 7),
        (("--to-offset", "700"), 10),
        (("--to-time", str(STARTED_MS + 3_500)), 4),
        (("--to-time", "1h"), 10),
        (("--shift", "2"), 6),
        (("--shift", "-3"), 1),
        (("--shift", "-30"), 0),
        (("--shift", "30"), 10),
    ],
)
def test_a_reset_goes_to_the_offset_nearest_to_its_target(
    penstock: Penstock, topic: str, group: str, aim: tuple[str, ...], expected: int
) -> None:
    penstock("consume", topic, "--group", group, "--max", "4")
    planned = penstock.json("group", "reset", group, "--topic", f"{topic}:0", *aim)
    assert planned["partitions"] == [{"topic": topic, "partition": 0, "old": 4, "new": expected}]


def test_a_reset_never_goes_before_the_log_start_offset(penstock: Penstock, topic: str, group: str) -> None:
    penstock("consume", topic, "--group", group)
    penstock("topic", "truncate", topic, "--before-offset", "5")
    planned = penstock.json("group", "reset", group, "--all-topics", "--to-offset", "2")
    assert [each["new"] for each in planned["partitions"]] == [5, 0]


def test_a_group_can_be_placed_before_it_first_reads(penstock: Penstock, topic: str, group: str) -> None:
    penstock("group", "reset", group, "--topic", topic, "--to-offset", "8", "--execute")
    assert penstock("consume", topic, "--group", group).split() == ["8", "9"]


def test_a_group_in_use_is_neither_reset_nor_deleted(
    penstock: Penstock, broker: Address, topic: str, group: str
) -> None:
    with member(broker, topic, group) as process:
        read_lines(process, 1)
        (only,) = penstock.json("group", "describe", group)["members"]
        complaint = penstock.refused("group", "reset", group, "--all-topics", "--to-latest", "--execute")
        assert f"has members: {only['member_id']}" in complaint
        assert "Stop the members of the group first" in penstock.refused("group", "delete", group)


def test_groups_are_deleted_with_their_offsets(penstock: Penstock, topic: str, group: str) -> None:
    for name in (group, f"{group}-2"):
        penstock("consume", topic, "--group", name)
    shown = penstock("group", "delete", group, f"{group}-2")
    assert sorted(shown.splitlines()) == [f"deleted group {group}", f"deleted group {group}-2"]
    assert not {group, f"{group}-2"} & {each["group"] for each in penstock.json("group", "list")}
    assert f"there is no group '{group}'" in penstock.refused("group", "describe", group)
    assert len(penstock("consume", topic, "--group", group).split()) == 10


def test_group_of_another_protocol_type_is_listed_and_deleted(
    penstock: Penstock, broker: Address, group: str
) -> None:
    asyncio.run(work_and_leave(broker, group))
    assert f"'{group}' is not a consumer group" in penstock.refused("group", "describe", group)
    assert penstock("group", "delete", group) == f"deleted group {group}\n"
    assert f"there is no group '{group}'" in penstock.refused("group", "delete", group)


async def work_and_leave(broker: Address, group: str) -> None:
    """Join with the protocol type of Kafka Connect."""
    host, _, port = broker.bootstrap.rpartition(":")
    client = await BrokerConnection.connect(TcpNetwork(), host, int(port))
    await client.request(FIND_COORDINATOR, 2, {"key": group, "key_type": 0})
    joined = await client.request(
        JOIN_GROUP,
        3,
        {
            "group_id": group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "connect",
            "protocols": [{"name": "sessioned", "metadata": b"a worker"}],
        },
    )
    member = {"group_id": group, "member_id": joined.member_id}
    synced = await client.request(
        SYNC_GROUP, 2, member | {"generation_id": joined.generation_id, "assignments": []}
    )
    left = await client.request(LEAVE_GROUP, 2, member)
    assert (joined.error_code, synced.error_code, left.error_code) == (0, 0, 0)
    client.close()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("group", "describe", "nobody"), "there is no group 'nobody'"),
        (("group", "delete", "nobody"), "there is no group 'nobody'"),
        (("group", "reset", "nobody", "--all-topics", "--to-latest"), "has no committed offsets"),
        (("group", "reset", "nobody", "--topic", "nothing-here", "--to-latest"), "there is no topic"),
        (("consume", "nothing-here", "--group", "nobody"), "there is no topic"),
    ],
)
def test_unknown_names_are_reported(penstock: Penstock, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in penstock.refused(*arguments)


def test_group_reset_by_a_shift_needs_a_committed_offset(penstock: Penstock, topic: str, group: str) -> None:
    complaint = penstock.refused("group", "reset", group, "--topic", topic, "--shift", "-1")
    assert "so there is nothing to shift" in complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("group", "reset", "g", "--to-latest"), "no topics are named"),
        (("group", "reset", "g", "--topic", "t", "--all-topics", "--to-latest"), "exclude each other"),
        (("group", "reset", "g", "--topic", "t"), "Give one of --to-earliest"),
        (("group", "reset", "g", "--topic", "t", "--to-latest", "--shift", "1"), "Give one of"),
        (("group", "reset", "g", "--topic", "t:x", "--to-latest"), "is not TOPIC or TOPIC:PARTITION"),
        (("consume", "t", "--group", "g", "--from", "7"), "--from 7 is not possible with --group"),
        (("consume", "t", "--group", "g", "--partition", "1"), "exclude each other"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    penstock: Penstock, arguments: tuple[str, ...], complaint: str
) -> None:
    assert complaint in penstock.refused(*arguments, code=2)


def test_the_clusters_own_topics_are_listed_on_request(penstock: Penstock, topic: str, group: str) -> None:
    penstock("consume", topic, "--group", group, "--max", "1")
    shown = [entry["topic"] for entry in penstock.json("topic", "list")]
    everything = [entry["topic"] for entry in penstock.json("topic", "list", "--internal")]
    assert topic in shown
    # Other tests of the same broker may have used transactions, queues or schedules.
    internal = set(everything) - set(shown)
    assert "__consumer_offsets" in internal
    assert all(name.startswith("__") for name in internal)


def test_reset_copies_the_offsets_of_another_group(penstock: Penstock, topic: str, group: str) -> None:
    penstock("consume", topic, "--group", f"{group}-source", "--max", "4")
    penstock("consume", topic, "--group", group)
    planned = penstock.json("group", "reset", group, "--all-topics", "--from-group", f"{group}-source")
    assert [(each["partition"], each["old"], each["new"]) for each in planned["partitions"]] == [(0, 10, 4)]
    penstock("group", "reset", group, "--topic", topic, "--from-group", f"{group}-source", "--execute")
    assert penstock("consume", topic, "--group", group, "--max", "1").split() == ["4"]
    refused = penstock.refused("group", "reset", group, "--all-topics", "--from-group", "none-such")
    assert "'none-such' has no committed offsets" in refused
    both = ("group", "reset", group, "--all-topics", "--from-group", "g", "--to-latest")
    assert "exactly one option" in penstock.refused(*both, code=2)


def test_offsets_of_one_topic_are_deleted(penstock: Penstock, topic: str, group: str) -> None:
    penstock("consume", topic, "--group", group, "--max", "4")
    deleted = penstock.json("group", "delete-offsets", group, "--topic", topic)
    assert deleted == {"group": group, "topic": topic, "deleted": True}
    assert "has no committed offsets" in penstock.refused("group", "delete-offsets", group, "--topic", topic)


def test_member_is_removed_and_its_partitions_are_free(
    penstock: Penstock, broker: Address, topic: str, group: str
) -> None:
    with member(broker, topic, group) as running:
        read_lines(running, 1)
        [found] = penstock.json("group", "describe", group)["members"]
        assert "has no member 'x'" in penstock.refused("group", "remove-member", group, "x")
        # The consumer runs, so it joins again with another member id.
        assert "removed member" in penstock("group", "remove-member", group, found["member_id"])
        eventually(
            lambda: (
                found["member_id"]
                not in [each["member_id"] for each in penstock.json("group", "describe", group)["members"]]
            ),
            within_s=PATIENCE_S,
        )


def test_members_of_an_unknown_group_cannot_be_removed(penstock: Penstock, group: str) -> None:
    assert "there is no group" in penstock.refused("group", "remove-member", group, "x")
