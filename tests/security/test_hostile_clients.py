"""Hostile peers of listeners with TLS and SASL: old protocols, bad certificates, floods of hellos and passwords."""

from __future__ import annotations

import asyncio
import datetime
import os
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from test_on_behalf import own_gateway, own_user

from penstock.config import Address
from penstock.security import passwords
from penstock.security.scram import ScramMechanism, ScramRecord, has_password
from support.certificates import TestAuthority, now_ms, replace_file
from support.sasl_client import Closed, SaslClient
from support.secure_brokers import add_user, address_of, in_thread, named
from support.whole_brokers import Brokers, run

HELLOS = 300
OPENSSL = shutil.which("openssl")


def negotiates(port: int, *options: str) -> bool:
    """Whether `openssl s_client` with these options gets a session."""
    assert OPENSSL is not None
    command = [OPENSSL, "s_client", "-connect", f"127.0.0.1:{port}", *options]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=30, check=False)
    return b"Verification" in done.stdout and b"Cipher is (NONE)" not in done.stdout


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
def test_old_protocols_and_weak_suites_are_refused_on_every_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = TestAuthority(tmp_path / "tls")
    own_user(monkeypatch, tmp_path, authority)

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        gateway = own_gateway(authority)
        places = [address_of(brokers, 1, name) for name in ("SSL", "SASL_SSL")]
        ports = [each.port for each in (*places, await gateway.start(places[1:]))]
        for port in (*ports, brokers.running[1].http_port):
            assert await in_thread(partial(negotiates, port, "-tls1_3"))
            assert await in_thread(partial(negotiates, port, "-tls1_2"))
            for old in ("-tls1", "-tls1_1"):
                lowest = "DEFAULT:@SECLEVEL=0"
                assert not await in_thread(partial(negotiates, port, old, "-cipher", lowest))
            for weak in ("AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "NULL", "DHE-RSA-AES128-SHA"):
                options = ("-tls1_2", "-cipher", f"{weak}:@SECLEVEL=0")
                assert not await in_thread(partial(negotiates, port, *options)), weak
        await gateway.stop()

    run(
        tmp_path,
        scenario,
        listeners="SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        http_port="0",
        http_ssl_enable="true",
        **named(authority.settings()),
    )


def custom_client(authority: TestAuthority, file: Path, purpose: x509.ObjectIdentifier, serial: int) -> Path:
    """Client certificate with a purpose and a serial number of its own."""
    issuer = x509.load_pem_x509_certificate(authority.pair.certificate)
    issuer_key = serialization.load_pem_private_key(authority.pair.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return replace_file(file, certificate.public_bytes(serialization.Encoding.PEM) + pem)


def revocation_list(authority: TestAuthority, serial: int) -> Path:
    issuer = x509.load_pem_x509_certificate(authority.pair.certificate)
    issuer_key = serialization.load_pem_private_key(authority.pair.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    now = datetime.datetime.now(datetime.UTC)
    revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now - datetime.timedelta(hours=1))
        .next_update(now + datetime.timedelta(days=1))
        .add_revoked_certificate(revoked)
        .sign(issuer_key, hashes.SHA256())
    )
    file = authority.directory / "crl.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return file


def is_served(address: Address, authority: TestAuthority, certificate: Path | None) -> bool:
    """Whether a client with this certificate gets an answer to ApiVersions."""
    context = ssl.create_default_context(cafile=str(authority.file))
    if certificate is not None:
        context.load_cert_chain(certificate)
    try:
        with (
            socket.create_connection((address.host, address.port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as connection,
        ):
            connection.sendall(bytes.fromhex("0000000a00120000000000010000"))
            return len(connection.recv(4)) > 0
    except OSError:
        return False


def test_bad_client_certificates_are_refused(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    stranger = TestAuthority(tmp_path / "stranger", "stranger")
    client, server = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
    files = authority.directory
    good = custom_client(authority, files / "good.pem", client, 1000)
    day_ms = 86_400_000
    bad = {
        "none": None,
        "expired": authority.issue("expired", (), days=1, at_ms=now_ms() - 3 * day_ms),
        "not valid yet": authority.issue("early", (), at_ms=now_ms() + day_ms),
        "of another authority": stranger.issue("client", ()),
        "for another purpose": custom_client(authority, files / "purpose.pem", server, 1001),
        "revoked": custom_client(authority, files / "revoked.pem", client, 1002),
        "self-signed": replace_file(files / "self.pem", stranger.pair.certificate + stranger.pair.key),
    }
    crl = revocation_list(authority, 1002)

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        address = address_of(brokers, 1, "SSL")
        assert await in_thread(partial(is_served, address, authority, good))
        for name, certificate in bad.items():
            assert not await in_thread(partial(is_served, address, authority, certificate)), name

    run(
        tmp_path,
        scenario,
        listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        inter_broker_listener_name="PLAINTEXT",
        ssl_client_auth="required",
        ssl_crl_location=str(crl),
        **named(authority.settings()),
    )


@pytest.mark.slow
def test_unfinished_hellos_cost_little_and_end_after_the_timeout(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    hello = bytes.fromhex("16030100f0010000ec0303") + bytes(100)

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        address = address_of(brokers, 1, "SSL")
        process = psutil.Process(os.getpid())
        before = process.memory_info().rss

        def open_all() -> list[socket.socket]:
            opened = [socket.create_connection((address.host, address.port)) for _ in range(HELLOS)]
            for each in opened:
                each.sendall(hello)
            return opened

        opened = await in_thread(open_all)
        assert await in_thread(partial(is_served, address, authority, None))
        assert process.memory_info().rss - before < HELLOS * 64 * 1024
        acceptor = brokers.running[1]._acceptor
        deadline = time.monotonic() + 30
        while acceptor.connections > 2 and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert acceptor.connections <= 2
        for each in opened:
            each.close()

    run(
        tmp_path,
        scenario,
        listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        inter_broker_listener_name="PLAINTEXT",
        ssl_handshake_timeout_ms="1500",
        **named(authority.settings()),
    )


def test_unknown_user_costs_the_same_work_as_a_wrong_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []

    def counting(mechanism: ScramMechanism, record: ScramRecord, password: str) -> bool:
        checked.append(record.iterations)
        return has_password(mechanism, record, password)

    monkeypatch.setattr(passwords, "has_password", counting)

    def attempt(address: Address, user: str) -> tuple[object, ...]:
        started = time.monotonic()
        with SaslClient(address) as client:
            answer = client.plain(user, "guess")
            seconds = time.monotonic() - started
            return answer.error_code, answer.error_message, bytes(answer.auth_bytes), seconds >= 0.1

    async def scenario(brokers: Brokers) -> None:
        await add_user(await brokers.start(1), "alice", "secret")
        address = address_of(brokers, 1, "SASL_PLAINTEXT")
        wrong = await in_thread(partial(attempt, address, "alice"))
        unknown = await in_thread(partial(attempt, address, "nobody"))
        assert wrong == unknown
        assert wrong[3]
        assert checked == [4096, 4096]

    run(tmp_path, scenario, listeners="SASL_PLAINTEXT://127.0.0.1:0", sasl_plain_without_tls="true")


@pytest.mark.slow
def test_guessed_passwords_do_not_delay_known_users(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await add_user(await brokers.start(1), "alice", "secret")
        address = address_of(brokers, 1, "SASL_PLAINTEXT")

        def log_in() -> float:
            started = time.monotonic()
            with SaslClient(address) as client:
                assert client.plain("alice", "secret").error_code == 0
            return time.monotonic() - started

        def guess(number: int) -> None:
            with SaslClient(address) as client, suppress(Closed):
                assert client.plain("alice", f"guess {number}").error_code

        await in_thread(log_in)
        guesses = [asyncio.create_task(in_thread(partial(guess, number))) for number in range(100)]
        times = [await in_thread(log_in) for _ in range(5)]
        await asyncio.gather(*guesses)
        assert min(times) < 5
        assert brokers.running[1]._security.logins.failed == 100

    run(tmp_path, scenario, listeners="SASL_PLAINTEXT://127.0.0.1:0", sasl_plain_without_tls="true")


@pytest.mark.parametrize(
    "name", ["u" * 300_000, "a\x00b", "a\nb", "\ud800".encode("utf-8", "replace").decode()]
)
def test_odd_user_names_fail_like_others(tmp_path: Path, name: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        await add_user(await brokers.start(1), "alice", "secret")
        address = address_of(brokers, 1, "SASL_PLAINTEXT")

        def attempt() -> None:
            with SaslClient(address) as client:
                assert client.scram(name, "x").error_code
            with SaslClient(address) as client:
                assert client.plain(name, "x").error_code

        await in_thread(attempt)
        assert not [line for line in brokers.lines if "u" * 1_000 in line]

    run(tmp_path, scenario, listeners="SASL_PLAINTEXT://127.0.0.1:0", sasl_plain_without_tls="true")
