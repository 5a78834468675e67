"""Clients in other languages against a cluster of three brokers, with a leader killed while they write: `make
clients`. ARGS names directories of programs, or last words of their commands: ARGS="go_topics Counts".

Each program creates a topic, produces, consumes in groups, runs transactions and admin requests, and exits
with an error if a result is wrong. Programs whose build tools are missing are named and skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from login_ground import login_ground
from secure import SecureBroker, secure_broker, secure_cluster

from support.cluster_processes import ClusterProcesses

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[2] / "build" / "clients"
PATIENCE_S = 300.0
LIFE_S = 0.7
DEATH_S = 2.0
PRODUCING = "PRODUCING"
"""Line that a program prints before it starts to write."""


@dataclass(frozen=True, slots=True)
class Foreign:
    name: str
    folder: str
    tools: tuple[str, ...]
    build: tuple[tuple[str, ...], ...]
    """Run the program in a copy of its directory."""
    run: tuple[str, ...]
    logs_in: bool = False
    """Whether the program logs in to a broker with TLS and users."""
    logs_in_often: bool = False
    """Whether the program logs in by every mechanism, and produces and consumes for some seconds."""
    login_lifetime_ms: int = 2_000
    """Time after which the logins of such a program expire; 0 for a client that does not log in again (KIP-368)."""

    @property
    def missing(self) -> list[str]:
        return [tool for tool in self.tools if shutil.which(tool) is None]


_JAVA_TOOLS = ("java", "javac", "mvn")
_JAVA_BUILD = (("mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=jars"),)
_JAVA_RUN = ("java", "-cp", "target/classes:jars/*")
_GO_TOPICS = (("go", "build", "-o", "bin/", "./..."),)
_COUNTS = (sys.executable, str(HERE / "counts.py"))
"""Check that drives the program whose command follows it."""
CLIENTS = (
    Foreign("Java, kafka-clients", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Client")),
    Foreign("Java, transactions", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Transactions")),
    Foreign("Java, share groups", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Shares")),
    Foreign("Java, views", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Views")),
    Foreign("Java, delayed messages", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Delays")),
    Foreign("Java, fewer partitions", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_COUNTS, *_JAVA_RUN, "Counts")),
    Foreign("Java, administration tools", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Tools")),
    Foreign("MirrorMaker 2", "mirror", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Mirror")),
    Foreign("Java, Kafka Streams", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Streams")),
    Foreign("Flink, exactly once", "flink", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Copy")),
    Foreign("Go, franz-go", "go", ("go",), (("go", "build", "-o", "client", "."),), ("./client",)),
    Foreign(
        "Go, administration by three clients",
        "go_admin",
        ("go",),
        (("go", "build", "-o", "client", "."),),
        ("./client",),
    ),
    Foreign("Go, views by franz-go and sarama", "go_topics", ("go",), _GO_TOPICS, ("bin/views",)),
    Foreign("Go, delayed messages by franz-go and sarama", "go_topics", ("go",), _GO_TOPICS, ("bin/delays",)),
    Foreign(
        "Go, fewer partitions by franz-go",
        "go_topics",
        ("go",),
        _GO_TOPICS,
        (*_COUNTS, "bin/counts", "franz"),
    ),
    Foreign(
        "Go, fewer partitions by sarama",
        "go_topics",
        ("go",),
        _GO_TOPICS,
        (*_COUNTS, "bin/counts", "sarama"),
    ),
    Foreign(
        "Go, share groups by franz-go",
        "go_shares",
        ("go",),
        (("go", "build", "-o", "client", "."),),
        ("./client",),
    ),
    Foreign(
        "Kafka's tools for share groups",
        "kafka_shares",
        ("java", "mvn"),
        (("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"),),
        (sys.executable, "shares.py"),
    ),
    Foreign(
        "JavaScript, kafkajs, delayed messages",
        "javascript",
        ("node", "npm"),
        (("npm", "install", "--no-audit", "--no-fund", "--silent"),),
        ("node", "delays.js"),
    ),
    Foreign(
        "JavaScript, kafkajs, fewer partitions",
        "javascript",
        ("node", "npm"),
        (("npm", "install", "--no-audit", "--no-fund", "--silent"),),
        (*_COUNTS, "node", "counts.js"),
    ),
    Foreign(
        "JavaScript, kafkajs, views",
        "javascript",
        ("node", "npm"),
        (("npm", "install", "--no-audit", "--no-fund", "--silent"),),
        ("node", "views.js"),
    ),
    Foreign(
        "JavaScript, kafkajs",
        "javascript",
        ("node", "npm"),
        (("npm", "install", "--no-audit", "--no-fund", "--silent"),),
        ("node", "main.js"),
    ),
    Foreign("Java, logins", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Secure"), logs_in=True),
    Foreign(
        "Kafka's kafka-configs, users",
        "kafka_configs",
        ("java", "mvn"),
        (("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"),),
        (sys.executable, "users.py"),
        logs_in=True,
    ),
    Foreign(
        "Kafka's kafka-acls and kafka-configs, rules and quotas",
        "kafka_configs",
        ("java", "mvn"),
        (("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"),),
        (sys.executable, "rights.py"),
        logs_in=True,
    ),
    Foreign(
        "Go, franz-go, logins",
        "go_secure",
        ("go",),
        (("go", "build", "-o", "client", "."),),
        ("./client",),
        logs_in=True,
    ),
    Foreign(
        "JavaScript, kafkajs, logins",
        "javascript",
        ("node", "npm"),
        (("npm", "install", "--no-audit", "--no-fund", "--silent"),),
        ("node", "secure.js"),
        logs_in=True,
    ),
    Foreign(
        "Java, every login", "java", _JAVA_TOOLS, _JAVA_BUILD, (*_JAVA_RUN, "Logins"), logs_in_often=True
    ),
    Foreign(
        "Go, franz-go, every login",
        "go_logins",
        ("go",),
        (("go", "build", "-o", "client", "."),),
        ("./client",),
        logs_in_often=True,
    ),
    Foreign(
        "JavaScript, kafkajs, every login",
        "javascript",
        ("node", "npm"),
        (("npm", "install", "--no-audit", "--no-fund", "--silent"),),
        ("node", "logins.js"),
        logs_in_often=True,
    ),
    Foreign(
        "kcat, every login",
        "kcat",
        ("kcat",),
        (),
        (sys.executable, "logins.py"),
        logs_in_often=True,
        login_lifetime_ms=0,
    ),
    Foreign(
        "Python, every login of three clients",
        "python",
        (),
        (),
        (sys.executable, "logins.py"),
        logs_in_often=True,
    ),
    Foreign(
        "Spark's own Kafka connector",
        "spark",
        ("java", "mvn"),
        (
            ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"),
            (sys.executable, "-m", "venv", "environment"),
            ("environment/bin/python", "-m", "pip", "install", "-q", "pyspark==4.0.0"),
        ),
        ("environment/bin/python", "main.py"),
    ),
)


def main(chosen: Sequence[str]) -> int:
    passed, failed, skipped = 0, 0, 0
    for client in CLIENTS:
        if chosen and not {client.folder, client.run[-1]} & set(chosen):
            continue
        if client.missing:
            print(f"{client.name}: skipped, {', '.join(client.missing)} is not installed")
            skipped += 1
            continue
        problem = build(client) or try_client(client)
        print(f"{client.name}: {problem or 'passed'}", flush=True)
        passed, failed = (passed, failed + 1) if problem else (passed + 1, failed)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def build(client: Foreign) -> str:
    """Description of the failure, or an empty string."""
    shutil.copytree(HERE / client.folder, BUILD / client.folder, dirs_exist_ok=True)
    for command in client.build:
        done = subprocess.run(
            command, cwd=BUILD / client.folder, capture_output=True, text=True, timeout=PATIENCE_S
        )
        if done.returncode:
            return f"cannot be built\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return ""


def try_client(client: Foreign) -> str:
    if client.logs_in_often:
        return try_login_load(client, 1) or try_login_load(client, 3)
    return try_logins(client) if client.logs_in else try_out(client)


def try_out(client: Foreign) -> str:
    with tempfile.TemporaryDirectory(prefix="penstock-foreign-") as directory:
        cluster = ClusterProcesses(Path(directory))
        try:
            cluster.start()
            problem = run(client, cluster)
            if not problem:
                cluster.wait_until_healed()
                cluster.stop()
            return problem
        finally:
            cluster.close()


def try_logins(client: Foreign) -> str:
    """Run a program with a secure broker, and with a secure cluster of three."""
    return try_login(client, secure_broker) or try_login(client, secure_cluster)


def try_login(client: Foreign, start: Callable[[Path], AbstractContextManager[SecureBroker]]) -> str:
    """Run a program with the address, the authority and the administrator of a broker or cluster."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-foreign-") as directory,
        start(Path(directory)) as broker,
    ):
        done = subprocess.run(
            [*client.run, *broker.arguments, f"from-{client.folder}"],
            cwd=BUILD / client.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
    return "" if done.returncode == 0 else f"failed with {done.returncode}\n{done.stderr[-4000:]}"


def try_login_load(client: Foreign, brokers: int) -> str:
    """Run a program that is under load while its logins expire."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-foreign-") as directory,
        login_ground(Path(directory), brokers, client.login_lifetime_ms) as ground,
    ):
        done = subprocess.run(
            [*client.run, str(ground.file)],
            cwd=BUILD / client.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        accepted, failed = ground.logins()
    print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="")
    print(f"  {accepted} logins at {brokers} brokers", flush=True)
    if done.returncode:
        return f"failed with {done.returncode}\n{done.stderr[-4000:]}"
    if failed:
        return f"{failed} logins failed"
    # Eight logins by SASL have a producer and a consumer each, which log in again every two seconds.
    return "clients did not log in again" if client.login_lifetime_ms and accepted < 40 else ""


def run(client: Foreign, cluster: ClusterProcesses) -> str:
    """Run the program, and kill and restart a leader while it writes."""
    topic = f"from-{client.folder}"
    process = subprocess.Popen(
        [*client.run, cluster.bootstrap, topic],
        cwd=BUILD / client.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []
    errors = threading.Thread(target=lambda: said.extend(process.stderr or ()))
    errors.start()
    guard = threading.Timer(PATIENCE_S, process.kill)
    guard.start()
    try:
        for line in process.stdout or ():
            print(f"  {line.rstrip()}", flush=True)
            if line.strip() == PRODUCING:
                kill_a_leader(cluster, topic)
    finally:
        code = process.wait()
        guard.cancel()
        errors.join()
    return "" if code == 0 else f"failed with {code}\n{''.join(said)[-4000:]}\n{cluster.log_tails()}"


def kill_a_leader(cluster: ClusterProcesses, topic: str) -> None:
    time.sleep(LIFE_S)
    victim = cluster.leader(topic)
    cluster.kill_brokers([victim])
    print(f"  broker {victim}, which leads, is killed", flush=True)
    time.sleep(DEATH_S)
    cluster.start_brokers([victim])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
