"""Canaries in every secret of a broker: they are in no output, whatever clients do and whatever fails."""

from __future__ import annotations

import json
import ssl
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from cryptography.hazmat.primitives import serialization
from test_http_users import basic

from penstock.security.access_token import AccessToken
from penstock.testing.process import BrokerProcess, free_ports
from support.certificates import TestAuthority, replace_file
from support.eventually import eventually

CLUSTER_SECRET = "canary-of-the-cluster-secret-0123456789"
KEY_PASSWORD = "canary-of-the-key-password"
ADMIN_PASSWORD = "canary-of-the-administrator"
WRONG_PASSWORD = "canary-of-a-wrong-password"
DIGEST = "penstock:canary-of-the-digest"
CANARY = "canary-of"


def encrypted(authority: TestAuthority) -> Path:
    """Certificate of a broker whose key has a password."""
    file = authority.issue("broker")
    content = file.read_bytes()
    start = content.index(b"-----BEGIN PRIVATE KEY")
    key = serialization.load_pem_private_key(content[start:], None)
    hidden = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(KEY_PASSWORD.encode()),
    )
    return replace_file(file, content[:start] + hidden)


class ConfiguredBroker(BrokerProcess):
    """Broker with a settings file."""

    def _command(self) -> list[str]:
        return [*super()._command(), "--config", str(self.data_dir.with_name("settings.properties"))]


class Place:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = TestAuthority(directory / "tls")
        [self.port] = free_ports(1)
        self.broker = ConfiguredBroker(directory)
        self.outputs: list[str] = []
        settings = directory / "settings.properties"
        secrets = {
            "cluster.secret": CLUSTER_SECRET,
            "ssl.key.password": KEY_PASSWORD,
            "zookeeper.digest": DIGEST,
        }
        lines = [
            f"listeners=SASL_SSL://127.0.0.1:{self.port}",
            "http.ssl.enable=true",
            "http.authentication.enable=true",
            "logging.level=debug",
            f"ssl.keystore.location={encrypted(self.authority)}",
            f"ssl.truststore.location={self.authority.file}",
            "admin.user=admin",
            f"admin.password.file={self._secret('admin', ADMIN_PASSWORD)}",
            *(f"{name}=${{file:{self._secret(name, value)}}}" for name, value in secrets.items()),
        ]
        settings.write_text("\n".join(lines))

    def _secret(self, name: str, value: str) -> Path:
        return replace_file(self.directory / f"{name}.secret", f"{value}\n".encode())

    def http(self, method: str, path: str, headers: dict[str, str], body: object = None) -> int:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        connection = HTTPSConnection("127.0.0.1", self.broker.http_port, timeout=20, context=context)
        try:
            more = {} if body is None else {"Content-Type": "application/json"}
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {**headers, **more})
            response = connection.getresponse()
            self.outputs += [f"{name}: {value}" for name, value in response.getheaders()]
            self.outputs.append(response.read().decode(errors="replace"))
            return response.status
        finally:
            connection.close()

    def describe_configs(self, password: str) -> None:
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.file),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": password,
            "log_level": 0,
        }
        resource = ConfigResource(ResourceType.BROKER, "1")
        found = AdminClient(settings).describe_configs([resource], request_timeout=10)
        try:
            entries = next(iter(found.values())).result(20)
            self.outputs += [f"{name}={entry.value}" for name, entry in entries.items()]
        except Exception as error:  # noqa: BLE001 - the text of any failure is an output
            self.outputs.append(str(error))


@pytest.mark.usefixtures("starts_processes")
def test_no_output_shows_a_secret(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.broker.spawn()
    try:
        health = lambda: place.http("GET", "/health", {}) == 200  # noqa: E731
        eventually(health, ignoring=(OSError,))
        right = {"Authorization": basic("admin", ADMIN_PASSWORD)}
        token = AccessToken("admin", "a1", CANARY.encode() * 4).text()
        for headers in (
            right,
            {"Authorization": basic("admin", WRONG_PASSWORD)},
            {"Authorization": f"Bearer {token}"},
            {"Cookie": f"__Host-penstock={token}"},
        ):
            for path in (
                "/v1/cluster",
                "/v1/brokers/1/configs",
                "/v1/brokers/1/log",
                "/openapi.json",
                "/metrics",
            ):
                place.http("GET", path, headers)
        for password in (ADMIN_PASSWORD, WRONG_PASSWORD):
            place.http("POST", "/v1/session", {}, {"user": "admin", "password": password})
            place.http("POST", "/v1/session", {}, {"user": "admin", "password": [password]})
            place.describe_configs(password)
        arguments = Path(f"/proc/{place.broker.pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{place.broker.pid}/environ").read_bytes()
    finally:
        place.broker.stop()
    outputs = "\n".join(place.outputs) + place.broker.log_path.read_text()
    assert "authentication" in outputs
    assert CANARY.encode() not in arguments + environment
    assert CANARY not in outputs
    assert token not in outputs
    stored = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
    assert stored
    for file in stored:
        assert ADMIN_PASSWORD.encode() not in file.read_bytes(), file
