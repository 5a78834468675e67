"""Tokens of OAUTHBEARER: which are accepted, and which must never be."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import Mapping
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.errors import ConfigError
from penstock.observability.logs import Logger
from penstock.security.oauth import RETRY_SECONDS, TokenLogin, TokenRefused, TokenValidator
from penstock.threads import ThreadPools
from support.manual_clock import ManualClock
from support.secure_brokers import address_of, in_thread
from support.whole_brokers import Brokers, run

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
RSA = RSAKey.generate_key(2048, {"kid": "rsa"}, private=True)
EC = ECKey.generate_key("P-256", {"kid": "ec"}, private=True)
OTHER = ECKey.generate_key("P-256", {"kid": "ec"}, private=True)


def settings_of(directory: Path, *keys: Any) -> dict[str, str]:
    file = directory / "keys.json"
    file.write_text(json.dumps({"keys": [key.as_dict(private=False) for key in keys]}))
    return {
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now - 5, "exp": now + 300, **changed}
    return {name: value for name, value in made.items() if value is not None}


def token(key: Any = EC, header: Mapping[str, Any] | None = None, **changed: Any) -> str:
    algorithm = "RS256" if key is RSA else "ES256"
    return jwt.encode({"alg": algorithm, "kid": key.kid, **(header or {})}, claims(**changed), key)


def validate(directory: Path, *tokens: str, keys: tuple[Any, ...] = (RSA, EC)) -> list[TokenLogin | str]:
    """Outcome of each token: its login, or the reason of the refusal."""

    async def body() -> list[TokenLogin | str]:
        threads = ThreadPools()
        log = Logger(SystemClock(), lambda _: None, lambda *_: "")
        validator = TokenValidator(BrokerConfig(settings_of(directory, *keys)), threads, SystemClock(), log)
        outcomes: list[TokenLogin | str] = []
        for each in tokens:
            try:
                outcomes.append(await validator.validate(each))
            except TokenRefused as refusal:
                outcomes.append(str(refusal))
        threads.close()
        return outcomes

    return asyncio.run(body())


def unsigned(header: Mapping[str, Any]) -> str:
    def part(content: Mapping[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part(header)}.{part(claims())}."


def test_tokens_of_the_issuer_are_accepted(tmp_path: Path) -> None:
    outcomes = validate(tmp_path, token(), token(RSA), token(aud=["other", AUDIENCE]))
    assert [isinstance(each, TokenLogin) and each.user for each in outcomes] == ["alice"] * 3


def forged_with_public_key() -> str:
    """HS256 with the issuer's public key as the secret."""
    content = unsigned({"alg": "HS256", "kid": "ec"}).removesuffix(".")
    signature = hmac.digest(EC.as_pem(private=False), content.encode(), "sha256")
    return f"{content}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


BAD = {
    "none": unsigned({"alg": "none"}),
    "none with a key id": unsigned({"alg": "none", "kid": "ec"}),
    "public key as secret": forged_with_public_key(),
    "another key of the same id": token(OTHER),
    "unknown key": jwt.encode({"alg": "ES256", "kid": "new"}, claims(), EC),
    "without key id": jwt.encode({"alg": "ES256"}, claims(), EC),
    "expired": token(exp=int(time.time()) - 60),
    "without exp": token(exp=None),
    "without iat": token(iat=None),
    "issued in the future": token(iat=int(time.time()) + 600),
    "not valid yet": token(nbf=int(time.time()) + 600),
    "other issuer": token(iss="https://evil.example"),
    "without issuer": token(iss=None),
    "other audience": token(aud="other"),
    "without audience": token(aud=None),
    "without user": token(sub=None),
    "user is a number": token(sub=7),
    "user with control characters": token(sub="a\nb"),
    "long user": token(sub="u" * 300),
    "cut": token()[:-5],
    "no token": "nonsense",
    "empty": "",
    "huge": "e30." + "A" * 20_000,
    "key url of the client": token(OTHER, {"jku": "https://evil.example/keys"}),
    "exp is text": token(exp="tomorrow"),
}


def test_forged_and_expired_tokens_are_refused(tmp_path: Path) -> None:
    outcomes = dict(zip(BAD, validate(tmp_path, *BAD.values()), strict=True))
    assert {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, str)} == {}


def test_clock_two_minutes_ahead_refuses_no_longer_than_the_skew(tmp_path: Path) -> None:
    [soon, late] = validate(tmp_path, token(exp=int(time.time()) - 10), token(exp=int(time.time()) - 120))
    assert isinstance(soon, TokenLogin)
    assert isinstance(late, str)


class Issuer:
    """Issuer whose keys are in a file that can be away, and a validator with a clock that the test moves."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "keys.json"
        self.clock = ManualClock()
        self.threads = ThreadPools()
        log = Logger(self.clock, lambda _: None, lambda *_: "")
        settings = BrokerConfig(settings_of(directory, EC))
        self.validator = TokenValidator(settings, self.threads, self.clock, log)

    def publish(self, *keys: Any) -> None:
        self.file.write_text(json.dumps({"keys": [key.as_dict(private=False) for key in keys]}))

    async def accepts(self, key: Any) -> bool:
        """Whether a token that is issued now is accepted."""
        now = self.clock.now_ms() // 1000
        try:
            await self.validator.validate(token(key, iat=now, exp=now + 300))
        except TokenRefused:
            return False
        return True


def test_known_keys_stay_in_use_while_the_issuer_is_away_for_an_hour(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)

    async def body() -> None:
        assert await issuer.accepts(EC)
        issuer.file.unlink()
        for _ in range(60):
            issuer.clock.advance(60_000)
            assert await issuer.accepts(EC)
            assert not await issuer.accepts(RSA)
        issuer.publish(EC, RSA)
        assert not await issuer.accepts(RSA), "keys are read at most once in RETRY_SECONDS"
        issuer.clock.advance(int(RETRY_SECONDS * 1000))
        assert await issuer.accepts(RSA)

    asyncio.run(body())
    issuer.threads.close()


@pytest.mark.parametrize(
    "content", ["", "<html>", "[]", "{}", '{"keys": 5}', '{"keys": [1]}', '{"keys": null}']
)
def test_response_without_keys_leaves_the_last_ones(tmp_path: Path, content: str) -> None:
    issuer = Issuer(tmp_path)

    async def body() -> None:
        assert await issuer.accepts(EC)
        issuer.file.write_text(content)
        issuer.clock.advance(60_000)
        assert not await issuer.accepts(RSA)
        assert await issuer.accepts(EC)

    asyncio.run(body())
    issuer.threads.close()


def test_response_that_ends_early_leaves_the_last_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer(tmp_path)

    def cut(*_: object, **__: object) -> None:
        raise IncompleteRead(b"{")

    async def body() -> None:
        assert await issuer.accepts(EC)
        monkeypatch.setattr("urllib.request.urlopen", cut)
        issuer.clock.advance(60_000)
        assert not await issuer.accepts(RSA)
        assert await issuer.accepts(EC)

    asyncio.run(body())
    issuer.threads.close()


@pytest.mark.parametrize(
    "missing",
    [
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.expected.audience",
    ],
)
def test_start_needs_keys_issuer_and_audience(tmp_path: Path, missing: str) -> None:
    settings = settings_of(tmp_path, EC)
    del settings[missing]
    with pytest.raises(ConfigError, match=missing):
        TokenValidator(
            BrokerConfig(settings), ThreadPools(), SystemClock(), Logger(SystemClock(), print, lambda *_: "")
        )


@pytest.mark.slow
def test_confluent_kafka_logs_in_with_a_token(tmp_path: Path) -> None:
    seconds = int(time.time()) + 300

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)

        def list_topics(given: str) -> object:
            admin = AdminClient(
                {
                    "bootstrap.servers": str(address_of(brokers, 1, "SASL_PLAINTEXT")),
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "OAUTHBEARER",
                    "oauth_cb": lambda _: (given, seconds),
                    "log_level": 3,
                }
            )
            admin.poll(1)
            return admin.list_topics(timeout=5)

        assert await in_thread(lambda: list_topics(token()))
        with pytest.raises(Exception, match=r"imed out|Failed|authentication"):
            await in_thread(lambda: list_topics(token(OTHER)))
        logins = brokers.running[1]._security.logins
        assert logins.accepted >= 1
        assert logins.failed >= 1

    run(
        tmp_path,
        scenario,
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        sasl_enabled_mechanisms="OAUTHBEARER",
        **{name.replace(".", "_"): value for name, value in settings_of(tmp_path, EC).items()},
    )
