"""SCRAM against the vectors of the RFCs, and against messages that a peer must not accept."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.scram import (
    MIN_ITERATIONS,
    ScramClient,
    ScramError,
    ScramMechanism,
    ScramRecord,
    ScramServer,
    decoy,
    has_password,
    record_of,
    salted_password,
)

SHA_256 = ScramMechanism.SHA_256


def record(password: str, mechanism: ScramMechanism = SHA_256, salt: bytes = b"salt") -> ScramRecord:
    salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
    return record_of(mechanism, salted, salt, MIN_ITERATIONS)


def test_scram_exchange_equals_the_vector_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = record_of(SHA_256, salted_password(SHA_256, "pencil", salt, 4096), salt, 4096)
    server = ScramServer(SHA_256, lambda _: known, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    client = ScramClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = server.first(client.first())
    assert answer == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.final(answer)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    proof = server.final(final)
    assert proof == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(proof)
    assert server.user == "user"


@given(
    st.text(min_size=1, max_size=40).filter(lambda name: "\0" not in name),
    st.text(min_size=1, max_size=40),
    st.sampled_from(list(ScramMechanism)),
)
def test_right_password_logs_in_and_a_wrong_one_does_not(
    user: str, password: str, mechanism: ScramMechanism
) -> None:
    known = record(password, mechanism)
    for given_password in (password, password + "x"):
        server = ScramServer(mechanism, lambda _: known, "server")
        client = ScramClient(mechanism, user, given_password, "client")
        final = client.final(server.first(client.first()))
        assert server.user == user
        if given_password == password:
            client.check(server.final(final))
        else:
            with pytest.raises(ScramError):
                server.final(final)
    assert has_password(mechanism, known, password)
    assert not has_password(mechanism, known, password + "x")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,r=x",
        b"n,,n=,r=x",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=us=2Der,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,b=user,n=user,r=x",
        b"n,,n=user,r=x,tokenauth=true",
        b"n,,n=" + b"u" * 1_000_000 + b",r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=user,r=a\x00b",
    ],
)
def test_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        ScramServer(SHA_256, lambda _: record("x"), "server").first(message)


def test_last_message_of_another_login_is_refused() -> None:
    known = record("secret")
    first = ScramServer(SHA_256, lambda _: known, "one")
    client = ScramClient(SHA_256, "user", "secret", "nonce")
    final = client.final(first.first(client.first()))
    first.final(final)
    replayed = ScramServer(SHA_256, lambda _: known, "two")
    replayed.first(client.first())
    with pytest.raises(ScramError, match="nonce"):
        replayed.final(final)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"r=nonce", b"r=other"),
        lambda text: text.replace(b"c=biws", b"c=eSws"),
        lambda text: text.replace(b"c=biws", b"c=***"),
        lambda text: text[: text.index(b",p=")],
        lambda text: text[: text.index(b",p=") + 3] + b"AAAA",
        lambda text: b"",
        lambda text: b"\xff",
    ],
)
def test_altered_last_message_is_refused(change: object) -> None:
    assert callable(change)
    server = ScramServer(SHA_256, lambda _: record("secret"), "server")
    client = ScramClient(SHA_256, "user", "secret", "nonce")
    final = client.final(server.first(client.first()))
    with pytest.raises(ScramError):
        server.final(change(final))


@pytest.mark.parametrize(("nonce", "is_accepted"), [("nonce", True), ("other", False), ("noncenonce", False)])
def test_nonce_that_librdkafka_repeats_is_accepted(nonce: str, is_accepted: bool) -> None:
    known = record("secret")
    server = ScramServer(SHA_256, lambda _: known, "server")
    answer = server.first(b"n,,n=user,r=nonce").decode()
    without_proof = f"c=biws,r={nonce}nonceserver"
    salted = salted_password(SHA_256, "secret", known.salt, known.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    content = f"n=user,r=nonce,{answer},{without_proof}".encode()
    signature = hmac.digest(known.stored_key, content, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    final = f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    if is_accepted:
        assert server.final(final).startswith(b"v=")
    else:
        with pytest.raises(ScramError, match="nonce"):
            server.final(final)


def test_client_refuses_a_server_that_does_not_know_the_record() -> None:
    client = ScramClient(SHA_256, "user", "secret", "nonce")
    server = ScramServer(SHA_256, lambda _: record("secret"), "server")
    client.final(server.first(client.first()))
    with pytest.raises(ScramError):
        client.check(b"v=AAAA")
    for answer in (
        b"r=other,s=c2FsdA==,i=4096",
        b"r=nonce,s=c2FsdA==,i=4096",
        b"r=nonceX,s=c2FsdA==,i=99999999",
    ):
        with pytest.raises(ScramError):
            ScramClient(SHA_256, "user", "secret", "nonce").final(answer)


def test_decoy_is_stable_for_a_name_and_differs_between_names() -> None:
    assert decoy(SHA_256, "a", "secret") == decoy(SHA_256, "a", "secret")
    assert decoy(SHA_256, "a", "secret").salt != decoy(SHA_256, "b", "secret").salt
    assert decoy(SHA_256, "a", "secret").salt != decoy(SHA_256, "a", "other").salt


def test_record_shows_no_secret() -> None:
    assert "salt" not in repr(record("secret")).replace("iterations", "")
