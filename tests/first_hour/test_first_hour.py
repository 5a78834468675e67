"""The first hour of a new user, command by command, with the text that each one prints.

Each test uses a broker or cluster of its own. Commands run as in a shell: a traceback, a missing hint or a
hint that does not work fails the test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock.cli.cluster.local_cluster import ClusterFile
from penstock.cli.processes.process_id import end_all
from support.broker_process import BrokerProcess, free_ports
from support.console_examples import ANYTHING, Example, examples, programs
from support.eventually import eventually
from support.ports import free_range

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SECONDS = 120.0
"""Bound of every command and wait, for a busy machine."""
TRACEBACK = "Traceback (most recent call last)"
JSON = "-H 'content-type: application/json'"
GREETING = '{"from_user": "ann", "to_user": "bob", "message": "hi"}'


class Shell:
    """A terminal of the user, with the commands of the installation in its path."""

    def __init__(self, directory: Path, bootstrap: str, http_port: int = 0, **variables: str) -> None:
        self.directory = directory
        self.http = f"127.0.0.1:{http_port}"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self.environment = inherited | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP": bootstrap,
            "HTTP": self.http,
            "COLUMNS": "200",
            "LC_ALL": "C.UTF-8",
            **variables,
        }

    def run(self, command: str, code: int = 0) -> str:
        """Everything that a command prints; its exit code must be `code`, and it must not print a traceback."""
        ended = self._start(["bash", "-c", command.replace("localhost:8080", self.http)])
        assert ended.returncode == code, f"$ {command}\n{ended.stdout}"
        assert TRACEBACK not in ended.stdout, f"$ {command}\n{ended.stdout}"
        return ended.stdout

    def expect(self, command: str, *lines: str, code: int = 0) -> None:
        """Run a command that prints these lines; `...` is any text within a line, and alone any lines."""
        said = self.run(command, code)
        assert Example(command, lines).matches(said), f"$ {command}\n{said}\nexpected\n" + "\n".join(lines)

    def python(self, program: str, code: int = 0) -> str:
        ended = self._start([sys.executable, "-c", program])
        assert ended.returncode == code, f"{program}\n{ended.stdout}"
        return ended.stdout

    def _start(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )


def wait_for(path: Path, text: str) -> None:
    """Wait until a process has printed a text into a file."""

    def printed() -> str:
        return path.read_text(errors="replace")

    eventually(lambda: text in printed(), f"{text!r} is printed", within_s=SECONDS, details=printed)


def started(directory: Path, settings: Sequence[str] = ()) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(directory, settings)
    broker.start()
    try:
        wait_for(broker.log_path, "HTTP at")
        yield broker
        broker.stop()
    finally:
        broker.kill()


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    yield from started(tmp_path, ["group.initial.rebalance.delay.ms=0"])


@pytest.fixture
def shell(broker: BrokerProcess, tmp_path: Path) -> Shell:
    return Shell(tmp_path, broker.bootstrap, broker.http_port)


# --- one broker


def test_first_steps_on_one_broker_print_helpful_output(shell: Shell, broker: BrokerProcess) -> None:
    take_the_tour(shell)
    mistype_an_option(shell)
    start_a_worker_before_its_topic(shell)
    use_http(shell)
    connect_to_the_http_port(shell)
    mistype_a_command(shell)
    change_settings_of_the_running_broker(shell)


def take_the_tour(shell: Shell) -> None:
    for example in examples(ROOT / "README.md"):
        shell.expect(example.command, *example.expected)
    [tour] = programs(ROOT / "README.md")
    assert "it ciao\n" in shell.python(tour.code)
    said = shell.run("penstock group describe tour")
    assert "greetings" in said


def mistype_an_option(shell: Shell) -> None:
    said = shell.python('from penstock import Consumer\nConsumer("orders", group_id="billing")', code=1)
    assert said.endswith("UnknownOption: there is no option 'group_id'; did you mean 'group'?\n")


def start_a_worker_before_its_topic(shell: Shell) -> None:
    """The worker waits and prints one line; it reads the records that are sent after the topic was created."""
    program = (
        "from penstock import Consumer\n"
        'with Consumer("late", group="workers", start="earliest", idle_timeout_s=60) as consumer:\n'
        "    for message in consumer:\n"
        "        print(message.value.decode(), flush=True)\n"
        "        break\n"
    )
    log = shell.directory / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, "-c", program], env=shell.environment, stdout=output, stderr=output
        )
    try:
        waiting = "topic 'late' does not exist; waiting for it (`penstock topic create late` creates it)\n"
        wait_for(log, waiting)
        shell.expect("penstock topic create late", "created topic late with 1 partition")
        shell.expect("echo task | penstock produce late", "sent 1 record (4 B) to late")
        assert worker.wait(SECONDS) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait()
    assert log.read_text() == waiting + "task\n"


def use_http(shell: Shell) -> None:
    missing = shell.run("curl -s $HTTP/v1/topics/missing/messages")
    assert '"status":404' in missing
    assert "there is no topic 'missing'" in missing
    said = shell.run(
        f'curl -s $HTTP/v1/topics/late/messages {JSON} -d \'{{"messages": [{{"value": "web"}}]}}\''
    )
    assert said == '{"messages":[{"partition":0,"offset":1}]}'
    read = shell.run("curl -s $HTTP/v1/topics/late/messages")
    assert read.index('"value":"task"') < read.index('"value":"web"')
    without_type = shell.run(f"curl -s $HTTP/send -H 'content-type:' -d '{GREETING}'")
    assert without_type.startswith('{"status":"success","message_id":"')
    as_a_form = shell.run(f"curl -s $HTTP/send -d '{GREETING}'")
    assert "this path needs a body with Content-Type: application/json" in as_a_form
    assert '"status":"serving"' in shell.run("curl -s $HTTP/health")


def connect_to_the_http_port(shell: Shell) -> None:
    shell.expect(
        "penstock topic list --bootstrap $HTTP",
        f"error: there is no Kafka broker at {shell.http} (this port speaks HTTP, not the Kafka protocol; ...)",
        "Name a broker with --bootstrap HOST:PORT or PENSTOCK_BOOTSTRAP.",
        code=1,
    )


def mistype_a_command(shell: Shell) -> None:
    assert "Did you mean 'create'" in shell.run("penstock topic crate orders", code=2)
    shell.expect(
        "penstock consume missing",
        "error: there is no topic 'missing'",
        "`penstock topic list` shows the topics, `penstock topic create` creates one.",
        code=1,
    )


def change_settings_of_the_running_broker(shell: Shell) -> None:
    shown = "penstock config show --broker 1 | grep '^log.retention.ms '"
    shell.expect("penstock config set log.retention.ms=60000 --broker 1", "set log.retention.ms on broker 1")
    shell.expect(shown, "log.retention.ms ... 60000 ... set on this broker")
    shell.expect("penstock config unset log.retention.ms --broker 1", "unset log.retention.ms on broker 1")
    shell.expect(shown, "log.retention.ms ... default")
    typo = shell.run("penstock config set log.retention.mss=3 --broker 1", code=1)
    assert "'log.retention.mss' is not a broker setting; did you mean log.retention.ms?" in typo


# --- a configuration file of Kafka


@pytest.mark.usefixtures("starts_processes")
def test_server_properties_of_kafka_start_a_broker_and_all_problems_are_named(tmp_path: Path) -> None:
    port, http_port = free_ports(2)
    shell = Shell(tmp_path, f"127.0.0.1:{port}")
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/a,/b\nlisteners=PLAINTEXT://:1,PLAINTEXT://:2\nlog.retention.mss=3\n")
    shell.expect(
        "penstock broker --config server.properties",
        "error: server.properties: log.dirs: a broker has one data directory; give one path",
        "server.properties: listeners='PLAINTEXT://:1,PLAINTEXT://:2': give NAME://HOST:PORT, separated by ...",
        "server.properties: 'log.retention.mss' is not a broker setting; did you mean log.retention.ms?",
        "Correct the setting and run the command again.",
        code=2,
    )
    file.write_text(
        f"broker.id=7\nlog.dirs={tmp_path}/kafka-logs\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
        "log.retention.hours=168\nnum.io.threads=8\n"
    )
    log = tmp_path / "broker.log"
    with log.open("wb") as output:
        broker = subprocess.Popen(
            [BIN / "penstock", "broker", "--config", file, "--http-port", str(http_port)],
            env=shell.environment,
            stdout=output,
            stderr=output,
        )
    try:
        wait_for(log, f"penstock serves Kafka clients at 127.0.0.1:{port}")
        shell.expect(
            "penstock config show --broker 7 | grep '^log.retention.ms '",
            "log.retention.ms ... 604800000 ...",
        )
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(SECONDS) == 0
    finally:
        broker.kill()
        broker.wait()
    [warning] = [line for line in log.read_text().splitlines() if "num.io.threads" in line]
    assert "one event loop" in warning
    assert TRACEBACK not in log.read_text()


# --- a full disk


@pytest.fixture
def small_disk(starts_processes: None, tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB. Skips the test if it may not be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_full_disk_is_named_and_truncation_makes_space(small_disk: Path) -> None:
    settings = ["log.dir.min.free.bytes=8000000", "log.retention.check.interval.ms=200"]
    for broker in started(small_disk, settings):
        shell = Shell(small_disk.parent, broker.bootstrap, broker.http_port)
        shell.expect("penstock topic create big", "created topic big with 1 partition")
        fill = "head -c 40000000 /dev/urandom | base64 -w 1000 | penstock produce big --timeout 8"
        said = shell.run(fill, code=1)
        assert "were not stored in big: the disk of broker 1 is full: " in said
        assert "Free space with `penstock topic truncate`" in said
        refused = shell.run(f"curl -s $HTTP/send {JSON} -d '{GREETING}'")
        assert '"status":507' in refused
        assert "nothing was stored: disk full" in refused
        assert '"disk_full":true' in shell.run("curl -s $HTTP/health")
        shell.expect(
            "penstock topic truncate big --before-offset 1000000 --yes",
            "partition  start offset",
            "        0 ...",
        )
        shell.expect("echo again | penstock produce big --timeout 60", ANYTHING, "sent 1 record (5 B) to big")
        assert '"disk_full":false' in shell.run("curl -s $HTTP/health")


# --- a cluster


@pytest.mark.usefixtures("starts_clusters")
def test_cluster_of_three_survives_the_loss_of_a_broker(tmp_path: Path) -> None:
    first = free_range(7) + 1
    shell = Shell(tmp_path, f"127.0.0.1:{first}")
    ports = f"--base-port {first} --http-base-port {first + 3}"
    try:
        shell.expect(
            f"penstock cluster up --data-dir c --brokers 3 {ports} --detach",
            f"ZooKeeper at 127.0.0.1:{first - 1}",
            *(
                f"broker {number} at 127.0.0.1:{first + number - 1}, metrics and health at http://..."
                for number in (1, 2, 3)
            ),
            "bootstrap servers: " + ",".join(f"127.0.0.1:{first + number}" for number in range(3)),
            "all brokers serve after ... s; `penstock cluster down --data-dir c` stops them",
        )
        shell.expect(
            "penstock topic create orders --replication-factor 3", "created topic orders with 1 partition"
        )
        shell.expect("echo one | penstock produce orders", "sent 1 record (3 B) to orders")
        shell.expect("penstock cluster kill 3 --data-dir c", "killed broker 3 (pid ...)")
        shell.expect("echo two | penstock produce orders", ANYTHING, "sent 1 record (3 B) to orders")
        shell.expect("penstock consume orders", "one", "two")
        assert "gone" in shell.run("penstock cluster status --data-dir c")
        shell.expect("penstock cluster down --data-dir c", "stopped 2 brokers")
    finally:
        known = ClusterFile(tmp_path / "c").load_if_there()
        if known is not None:
            recorded = [known.zookeeper.process, *(each.process for each in known.brokers)]
            end_all([each for each in recorded if each is not None], signal.SIGKILL, SECONDS)


# --- the pipeline


@pytest.mark.timeout(400)
@pytest.mark.parametrize("java", ["of the system", "bundled"])
def test_pipeline_archives_with_and_without_a_java_of_the_system(
    java: str, shell: Shell, tmp_path: Path
) -> None:
    if java == "bundled":
        hide_java(shell, tmp_path / "bin")
        assert "no java" in shell.run("command -v java || echo no java")
    elif "no java" in shell.run("command -v java || echo no java"):
        pytest.skip("this machine has no Java of its own")
    shell.expect("penstock topic create orders", "created topic orders with 1 partition")
    shell.expect("seq 1 100 | penstock produce orders", "sent 100 records (192 B) to orders")
    archive = "penstock pipeline archive --topics orders --to archive --once"
    shell.expect(archive, "Archived 100 records in 1 files, in ... s (... s of it to start Spark).")
    shell.expect(archive, "Archived 0 records in 0 files, in ... s (0.0 s of it to start Spark).")
    assert "there is no topic 'missing'" in shell.run(
        "penstock pipeline archive --topics missing --to other --once", code=1
    )


def hide_java(shell: Shell, directory: Path) -> None:
    """A PATH with all system commands but java."""
    directory.mkdir()
    for place in ("/usr/bin", "/bin"):
        for command in Path(place).iterdir():
            link = directory / command.name
            if not command.name.startswith("java") and not link.is_symlink():
                link.symlink_to(command)
    shell.environment["PATH"] = f"{BIN}:{directory}"
    shell.environment.pop("JAVA_HOME", None)
