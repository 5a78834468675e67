"""Commands against a broker with users: first user, TLS, contexts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.process import free_ports
from support.broker_process import BrokerProcess
from support.eventually import eventually
from support.ports import free_range

pytestmark = pytest.mark.usefixtures("starts_processes")


class Commands:
    """Command line with an environment of its own."""

    def __init__(self, home: Path) -> None:
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")
        } | {"XDG_CONFIG_HOME": str(home)}

    def run(
        self, *arguments: str, given: str = "", code: int = 0, variables: dict[str, str] | None = None
    ) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *arguments],
            input=given,
            capture_output=True,
            text=True,
            env=self.environment | (variables or {}),
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


def private(file: Path, content: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(content)
    return file


def test_users_certificates_and_contexts_work_together(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "home")
    tls = tmp_path / "tls"
    commands.run("tls", "init", "--dir", str(tls))
    commands.run("tls", "issue", "broker", "--host", "127.0.0.1", "--dir", str(tls))
    assert "127.0.0.1" in commands.run("tls", "show", str(tls / "broker.pem"))
    [port] = free_ports(1)
    broker = BrokerProcess(
        tmp_path,
        [
            f"listeners=SASL_SSL://127.0.0.1:{port}",
            f"ssl.keystore.location={tls / 'broker.pem'}",
            f"ssl.truststore.location={tls / 'ca.pem'}",
            "http.port=-1",
        ],
    )
    commands.run("user", "create", "admin", "--data-dir", str(broker.data_dir), given="secret\n")
    broker.spawn()
    eventually(lambda: _accepts(port), ignoring=(OSError,))
    try:
        password = private(tmp_path / "password", "secret\n")
        commands.run(
            "context", "add", "lab", "--address", f"127.0.0.1:{port}", "--ca", str(tls / "ca.pem"),
            "--user", "admin", "--password-file", str(password),
        )  # fmt: skip
        commands.run("topic", "create", "t", "--context", "lab")
        commands.run("produce", "t", given="hello\n")
        assert "hello" in commands.run("consume", "t", "--max", "1")
        commands.run("user", "create", "bob", given="other\n")
        listed = commands.run("user", "list")
        assert "admin" in listed
        check_user(commands)
        password.write_text("wrong")
        check_refused_logins(commands, port, tls / "ca.pem")
        assert '"user": "admin"' in commands.run("context", "show", "--json")
    finally:
        broker.stop()
    for secret in ("secret", "other"):
        assert secret not in broker.log_path.read_text()


def check_refused_logins(commands: Commands, port: int, authority: Path) -> None:
    """A wrong password, no user and no TLS are named as such, with the setting."""
    refused = commands.run("topic", "list", code=1)
    assert "cannot log in" in refused
    assert "wrong user or password" in refused
    assert "Set PENSTOCK_USER" in refused
    without_user = {"PENSTOCK_BOOTSTRAP": f"127.0.0.1:{port}", "PENSTOCK_CA": str(authority)}
    assert "Set PENSTOCK_USER" in commands.run("topic", "list", code=1, variables=without_user)
    del without_user["PENSTOCK_CA"]
    assert "PENSTOCK_CA" in commands.run("topic", "list", code=1, variables=without_user)


def check_user(commands: Commands) -> None:
    """Show and disable a user, and manage its tokens."""
    assert "SCRAM-SHA-512" in commands.run("user", "show", "bob")
    assert "exists" in commands.run("user", "create", "bob", given="x\n", code=1)
    commands.run("user", "disable", "bob")
    assert "disabled" in commands.run("user", "show", "bob")
    commands.run("user", "enable", "bob")
    assert not json.loads(commands.run("user", "show", "bob", "--json"))["is_disabled"]
    token = commands.run("user", "token", "create", "bob", "--label", "build server").strip()
    assert token.startswith("pst_")
    made = json.loads(commands.run("user", "token", "create", "bob", "--expires-in", "90d", "--json"))
    listed = json.loads(commands.run("user", "token", "list", "bob", "--json"))
    assert [each["label"] for each in listed] == ["build server", ""]
    assert listed[1]["expires_ms"] - listed[1]["created_ms"] == 90 * 86_400_000
    assert token not in commands.run("user", "token", "list", "bob")
    commands.run("user", "token", "revoke", "bob", made["id"])
    assert "list" in commands.run("user", "token", "revoke", "bob", made["id"], code=1)
    assert len(json.loads(commands.run("user", "token", "list", "bob", "--json"))) == 1
    assert "there is no user 'nobody'" in commands.run("user", "token", "create", "nobody", code=1)
    assert "not a lifetime" in commands.run("user", "token", "create", "bob", "--expires-in", "0d", code=2)
    assert "'user a\\nb': the name must" in commands.run("user", "create", "a\nb", given="x\n", code=1)


def _accepts(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True


def test_one_flag_gives_an_encrypted_broker_with_an_administrator(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "home")
    port, http_port = free_ports(2)
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "broker",
        "--secure",
        "--data-dir",
        str(tmp_path / "data"),
    ]
    command += ["--port", str(port), "--http-port", str(http_port)]
    passwords = []
    for _ in range(2):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=commands.environment
        ) as broker:
            assert broker.stdout is not None
            lines = []
            for line in broker.stdout:
                lines.append(line)
                if "penstock serves" in line:
                    break
            passwords += [line for line in lines if "password" in line and "created user" in line]
            commands.run("topic", "list", "--context", f"local-{port}")
            commands.run("topic", "list")
            context = json.loads(commands.run("context", "show", "--json"))
            assert {"bootstrap", "ca", "user"} <= context.keys()
            broker.terminate()
            assert broker.wait(30) == 0
    assert len(passwords) == 1
    assert "https://" in lines[-1]
    password = (tmp_path / "data" / "tls" / "admin.password").read_text().strip()
    assert password in passwords[0]
    assert password not in "".join(lines)


@pytest.mark.usefixtures("starts_clusters")
def test_one_flag_encrypts_several_processes(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "home")
    port = free_range(4)
    program = [sys.executable, "-m", "penstock.cli.main", "broker", "--secure", "--processes", "2"]
    places = ["--data-dir", str(tmp_path / "data"), "--port", str(port), "--http-port", str(port + 3)]
    log = tmp_path / "broker.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*program, *places], stdout=subprocess.PIPE, stderr=errors, text=True, env=commands.environment
        ) as broker,
    ):
        try:
            assert broker.stdout is not None
            said = next((line for line in broker.stdout if "penstock serves" in line), "")
            assert "2 processes" in said, log.read_text()
            assert "https://" in said
            commands.run("topic", "create", "t", "--partitions", "2", "--replication-factor", "2")
            commands.run("produce", "t", given="hello\n")
            assert "hello" in commands.run("consume", "t", "--max", "1")
        finally:
            broker.terminate()
    assert broker.returncode == 0, log.read_text()


@pytest.mark.usefixtures("starts_clusters")
def test_one_flag_gives_an_encrypted_cluster(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "home")
    directory = str(tmp_path / "cluster")
    base_port, http_base_port = free_ports(1)[0], 24_000 + os.getpid() % 4_000
    up = ("cluster", "up", "--secure", "--data-dir", directory, "--detach")
    output = commands.run(*up, "--base-port", str(base_port), "--http-base-port", str(http_base_port))
    try:
        assert "created user admin" in output
        commands.run("topic", "create", "t", "--context", f"local-{base_port}")
        commands.run("produce", "t", given="hello\n")
        assert "hello" in commands.run("consume", "t", "--max", "1")
        assert "3" in commands.run("cluster", "status", "--data-dir", directory)
        password = (tmp_path / "cluster" / "tls" / "admin.password").read_text().strip()
        digest = (tmp_path / "cluster" / "tls" / "zookeeper.digest").read_text().strip()
        written = [file.read_bytes() for file in (tmp_path / "cluster").rglob("*") if is_output(file)]
        assert not [content for content in written if password.encode() in content]
        assert not [content for content in written if digest.encode() in content]
    finally:
        commands.run("cluster", "down", "--data-dir", directory)


def is_output(file: Path) -> bool:
    """Whether a file is no secret itself."""
    return file.is_file() and "tls" not in file.parts
