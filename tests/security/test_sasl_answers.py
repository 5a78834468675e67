"""Answers to every step of SASL: those of Kafka 4.3, except that unknown users cannot be found out."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from penstock.security.scram import ScramClient, ScramMechanism
from penstock.wire.messages import decode_response_frame
from support.eventually import eventually
from support.harness import Harness
from support.sasl_client import Closed, SaslClient
from support.secure_brokers import add_user, address_of, delete_user, in_thread
from support.whole_brokers import Brokers, run

FAILED = ErrorCode.sasl_authentication_failed
PLAIN_FAILED = "Authentication failed: Invalid username or password"
SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl_plain_without_tls": "true"}


def against_broker(tmp_path: Path, talk: Callable[[SaslClient], None], **settings: str) -> None:
    """Run a conversation with a broker that has the user alice with the password secret."""

    async def scenario(brokers: Brokers) -> None:
        await add_user(await brokers.start(1), "alice", "secret")
        address = address_of(brokers, 1, "SASL_PLAINTEXT")

        def body() -> None:
            with SaslClient(address) as client:
                talk(client)

        await in_thread(body)

    run(tmp_path, scenario, **{**SASL, **settings})


def other_api_first(client: SaslClient) -> None:
    with pytest.raises(Closed):
        client.ask(3, 1, {"topics": None})


def versions_twice(client: SaslClient) -> None:
    assert client.versions().error_code == 0
    with pytest.raises(Closed):
        client.versions()


def versions_again_after_an_unsupported_version(client: SaslClient) -> None:
    """Clients ask with the newest version they know, and then with one that the broker knows (franz-go does)."""
    client.send(bytes.fromhex("0000000b00120063000000050000") + b"\0")
    answer = decode_response_frame(18, 0, memoryview(client.receive()))
    assert answer.error_code == ErrorCode.unsupported_version
    assert client.versions().error_code == 0
    assert client.plain("alice", "secret").error_code == 0


def unknown_mechanism(client: SaslClient) -> None:
    answer = client.handshake("GSSAPI")
    assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
    assert set(answer.mechanisms) == {"SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"}
    assert client.is_closed()


def authenticate_without_handshake(client: SaslClient) -> None:
    with pytest.raises(Closed):
        client.authenticate(b"\0alice\0secret")


def second_handshake(client: SaslClient) -> None:
    assert client.handshake("PLAIN").error_code == 0
    assert client.handshake("PLAIN").error_code == ErrorCode.illegal_sasl_state
    assert client.is_closed()


def metadata_after_the_handshake(client: SaslClient) -> None:
    client.handshake("PLAIN")
    answer = client.ask(3, 1, {"topics": None})
    assert (len(answer.brokers), len(answer.topics)) == (0, 0)
    assert client.is_closed()


def produce_after_the_handshake(client: SaslClient) -> None:
    client.handshake("PLAIN")
    with pytest.raises(Closed):
        client.ask(19, 2, {"topics": (), "timeout": 1, "validate_only": False})


def wrong_password(client: SaslClient) -> None:
    answer = client.plain("alice", "guess")
    assert (answer.error_code, answer.error_message) == (FAILED, PLAIN_FAILED)
    assert client.is_closed()


def unknown_user(client: SaslClient) -> None:
    answer = client.plain("nobody", "secret")
    assert (answer.error_code, answer.error_message) == (FAILED, PLAIN_FAILED)
    assert client.is_closed()


def other_authorization_id(client: SaslClient) -> None:
    client.handshake("PLAIN")
    assert client.authenticate(b"bob\0alice\0secret").error_code == FAILED
    assert client.is_closed()


def two_parts(client: SaslClient) -> None:
    client.handshake("PLAIN")
    answer = client.authenticate(b"alice\0secret")
    assert (answer.error_code, answer.error_message) == (
        FAILED,
        "Invalid SASL/PLAIN response: expected 3 tokens, got 2",
    )


def large_frame(client: SaslClient) -> None:
    client.send(struct.pack(">i", 600_000))
    assert client.is_closed()


def right_password(client: SaslClient) -> None:
    answer = client.plain("alice", "secret")
    assert (answer.error_code, answer.session_lifetime.total_seconds()) == (0, 0)
    assert client.ask(3, 1, {"topics": None}).brokers


def scram(client: SaslClient) -> None:
    assert client.scram("alice", "secret", ScramMechanism.SHA_512).error_code == 0
    assert client.ask(3, 1, {"topics": None}).brokers


def scram_unknown_user(client: SaslClient) -> None:
    """Refused at the second message, as a wrong password is: Kafka refuses the first one."""
    client.handshake("SCRAM-SHA-256")
    login = ScramClient(ScramMechanism.SHA_256, "nobody", "secret", "nonce")
    first = client.authenticate(login.first())
    assert first.error_code == 0
    assert client.authenticate(login.final(first.auth_bytes)).error_code == FAILED
    assert client.is_closed()


def scram_wrong_nonce(client: SaslClient) -> None:
    client.handshake("SCRAM-SHA-256")
    login = ScramClient(ScramMechanism.SHA_256, "alice", "secret", "nonce")
    final = login.final(client.authenticate(login.first()).auth_bytes)
    assert client.authenticate(final.replace(b"r=nonce", b"r=other")).error_code == FAILED
    assert client.is_closed()


def raw_tokens(client: SaslClient) -> None:
    assert client.handshake("PLAIN", 0).error_code == 0
    token = b"\0alice\0secret"
    client.send(struct.pack(">i", len(token)) + token)
    assert client.receive() == b""
    assert client.ask(3, 1, {"topics": None}).brokers


def raw_tokens_with_a_wrong_password(client: SaslClient) -> None:
    client.handshake("PLAIN", 0)
    client.send(struct.pack(">i", 8) + b"\0alice\0x")
    assert client.is_closed()


def silence(client: SaslClient) -> None:
    assert client.is_closed()


TALKS = (
    other_api_first,
    versions_twice,
    versions_again_after_an_unsupported_version,
    unknown_mechanism,
    authenticate_without_handshake,
    second_handshake,
    metadata_after_the_handshake,
    produce_after_the_handshake,
    wrong_password,
    unknown_user,
    other_authorization_id,
    two_parts,
    large_frame,
    right_password,
    scram,
    scram_unknown_user,
    scram_wrong_nonce,
    raw_tokens,
    raw_tokens_with_a_wrong_password,
)


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.__name__)
def test_sasl_step_gets_the_response_of_kafka(tmp_path: Path, talk: Callable[[SaslClient], None]) -> None:
    against_broker(tmp_path, talk)


def test_silent_client_is_closed_after_the_timeout(tmp_path: Path) -> None:
    against_broker(tmp_path, silence, ssl_handshake_timeout_ms="50")


def test_plain_is_not_offered_without_tls(tmp_path: Path) -> None:
    def talk(client: SaslClient) -> None:
        answer = client.handshake("PLAIN")
        assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
        assert "PLAIN" not in answer.mechanisms

    against_broker(tmp_path, talk, sasl_plain_without_tls="false")


def test_no_api_is_served_before_the_login(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        address = address_of(brokers, 1, "SASL_PLAINTEXT")
        keys = set(brokers.running[1]._dispatcher._apis) - {17, 18, 32_000}

        def body() -> None:
            for key in keys:
                with SaslClient(address) as client:
                    client.send(struct.pack(">ihhih", 10, key, 0, 1, 0))
                    assert client.is_closed(), key

        await in_thread(body)
        assert harness.context.metrics.requests[3].total_seconds == 0

    run(tmp_path, scenario, **SASL)


@pytest.mark.slow
def test_login_again_must_be_as_the_same_user(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "alice", "secret")
        await add_user(harness, "bob", "other")
        address = address_of(brokers, 1, "SASL_PLAINTEXT")

        def body() -> None:
            with SaslClient(address) as client:
                first = client.plain("alice", "secret")
                assert 0 < first.session_lifetime.total_seconds() <= 1
                assert client.scram("alice", "secret").error_code == 0
                answer = client.scram("bob", "other")
                assert answer.error_code == FAILED
                assert "Cannot change principals during re-authentication" in answer.error_message
                assert client.is_closed()
            with SaslClient(address) as client:
                client.plain("alice", "secret")
                assert client.is_closed()

        await in_thread(body)

    run(tmp_path, scenario, **SASL, connections_max_reauth_ms="1000")


def test_request_after_the_lifetime_closes_the_connection(tmp_path: Path) -> None:
    def talk(client: SaslClient) -> None:
        def is_closed() -> bool:
            try:
                assert client.versions().error_code == 0
            except Closed:
                return True
            return False

        began = time.monotonic()
        client.plain("alice", "secret")
        eventually(is_closed, poll_s=0)
        assert time.monotonic() >= began + 0.3

    against_broker(tmp_path, talk, connections_max_reauth_ms="300")


@pytest.mark.parametrize("change", [delete_user, lambda harness, name: add_user(harness, name, "new")])
def test_change_of_a_user_ends_its_connections(
    tmp_path: Path, change: Callable[[Harness, str], object]
) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "alice", "secret")
        await add_user(harness, "bob", "other")
        address = address_of(brokers, 1, "SASL_PLAINTEXT")
        alice, bob = await in_thread(lambda: (SaslClient(address), SaslClient(address)))
        with alice, bob:
            await in_thread(lambda: alice.scram("alice", "secret"))
            await in_thread(lambda: bob.plain("bob", "other"))
            await change(harness, "alice")  # type: ignore[misc]
            assert await in_thread(alice.is_closed)
            assert await in_thread(lambda: bob.ask(3, 1, {"topics": None}).brokers)

    run(tmp_path, scenario, **SASL)
