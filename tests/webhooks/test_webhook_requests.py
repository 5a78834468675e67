"""Ids, bodies, signatures, sealed secrets and decisions of webhooks: everything without a network."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from uuid import UUID

import pytest

from penstock.records.iteration import Record
from penstock.webhooks.outcome import (
    BACK_OFF_MS,
    MAX_DELAY_MS,
    MAX_HOLD_MS,
    QUEUE_BACK_OFF,
    Action,
    Attempt,
    decide,
    failed,
    hold_after,
    read_retry_after,
)
from penstock.webhooks.request import CLOUDEVENT, RAW, MessageSource, make_request
from penstock.webhooks.sealing import NONCE_BYTES, CannotUnseal, seal, unseal
from penstock.webhooks.signing import key_of, new_secret, signature_headers

SOURCE = MessageSource("orders", UUID(int=7), 3)
JSON_TYPE = (("content-type", b"application/json"),)
FIRST = Attempt(1, False, 0.5)


def record(value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Record:
    return Record(42, 1_700_000_000_123, b"alice", value, headers)


def test_signature_is_that_of_standard_webhooks() -> None:
    # The example of the specification's libraries: this secret, id, time and body have this signature.
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = signature_headers(
        [key_of(secret)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert dict(headers)["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_two_secrets_give_two_signatures() -> None:
    keys = [key_of("new text"), key_of(new_secret(b"k" * 32))]
    headers = dict(signature_headers(keys, "msg_1", 5, b"body"))
    expected = [
        "v1," + base64.b64encode(hmac.new(key, b"msg_1.5.body", hashlib.sha256).digest()).decode()
        for key in (b"new text", b"k" * 32)
    ]
    assert headers == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "5",
        "webhook-signature": " ".join(expected),
    }


@pytest.mark.parametrize("secret", ["", "x" * 201, "whsec_", "whsec_***"])
def test_bad_secret_is_refused_without_showing_it(secret: str) -> None:
    with pytest.raises(ValueError, match=r"secret|whsec_") as refused:
        key_of(secret)
    assert "***" not in str(refused.value)


def test_sealed_secret_opens_only_for_its_webhook_and_cluster() -> None:
    sealed = seal("cluster", "hook", "whsec_x", bytes(NONCE_BYTES))
    assert b"whsec_x" not in sealed
    assert unseal("cluster", "hook", sealed) == "whsec_x"
    for cluster, name, content in (
        ("other", "hook", sealed),
        ("cluster", "other", sealed),
        ("cluster", "hook", sealed[:-1] + b"x"),
        ("cluster", "hook", b""),
    ):
        with pytest.raises(CannotUnseal, match="rotate-secret"):
            unseal(cluster, name, content)


def test_raw_body_is_the_stored_value() -> None:
    made = make_request(SOURCE, record(b"\x00bytes"), 2, RAW)
    assert made.body == b"\x00bytes"
    headers = dict(made.headers)
    assert headers["content-type"] == "application/octet-stream"
    assert (headers["penstock-attempt"], headers["penstock-offset"]) == ("2", "42")
    assert dict(make_request(SOURCE, record(b"{}", JSON_TYPE), 1, RAW).headers)["content-type"] == (
        "application/json"
    )
    assert made.message_id == make_request(SOURCE, record(b"again"), 5, CLOUDEVENT).message_id
    hostile = record(b"", (("content-type", b"a\r\nx-evil: 1"),))
    assert dict(make_request(SOURCE, hostile, 1, RAW).headers)["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("value", "headers", "expected"),
    [
        (b'{"id":7}', JSON_TYPE, {"datacontenttype": "application/json", "data": {"id": 7}}),
        (b'{"id":7}', (), {"datacontenttype": "application/json", "data": {"id": 7}}),
        (
            b"hello",
            (("content-type", b"text/plain; charset=utf-8"),),
            {"datacontenttype": "text/plain; charset=utf-8", "data": "hello"},
        ),
        (b"\xff", (), {"datacontenttype": "application/octet-stream", "data_base64": "/w=="}),
        (b"{", JSON_TYPE, {"datacontenttype": "application/json", "data_base64": "ew=="}),
        (None, (), {}),
    ],
)
def test_cloud_event_contains_the_value(
    value: bytes | None, headers: tuple[tuple[str, bytes | None], ...], expected: dict[str, object]
) -> None:
    made = make_request(SOURCE, record(value, headers), 1, CLOUDEVENT)
    event = json.loads(made.body)
    assert dict(made.headers)["content-type"] == "application/cloudevents+json"
    fixed = {
        "specversion": "1.0",
        "id": made.message_id,
        "source": "/topics/orders",
        "type": "penstock.message",
        "time": "2023-11-14T22:13:20.123Z",
        "partitionkey": "alice",
        "penstockpartition": 3,
        "penstockoffset": "42",
    }
    assert event == fixed | expected


@pytest.mark.parametrize(
    ("status", "action"),
    [
        (200, Action.ACCEPT),
        (204, Action.ACCEPT),
        (299, Action.ACCEPT),
        (302, Action.RELEASE),
        (400, Action.RELEASE),
        (404, Action.RELEASE),
        (410, Action.PAUSE),
        (429, Action.RELEASE),
        (500, Action.RELEASE),
        (999, Action.RELEASE),
    ],
)
def test_only_2xx_accepts_and_410_pauses(status: int, action: Action) -> None:
    assert decide(status, None, FIRST).action is action


def test_back_off_grows_with_the_attempts() -> None:
    delays = [decide(500, None, Attempt(number, False, 0.5)).delay_ms for number in range(1, 9)]
    assert delays == [*BACK_OFF_MS, BACK_OFF_MS[-1], BACK_OFF_MS[-1]]
    assert decide(500, None, Attempt(3, True, 0.5)).delay_ms == QUEUE_BACK_OFF
    assert failed("no answer", Attempt(1, False, 0.0)).delay_ms == 800
    assert failed("no answer", Attempt(1, False, 1.0)).delay_ms == 1_200


def test_retry_after_delays_the_message_and_holds_the_webhook() -> None:
    asked = decide(429, 90_000, FIRST)
    assert (asked.action, asked.delay_ms, asked.hold_ms) == (Action.RELEASE, 90_000, 90_000)
    assert decide(429, 90_000, Attempt(1, True, 0.5)).delay_ms == 90_000
    assert decide(500, 90_000, FIRST).hold_ms == 0
    assert decide(429, 10**12, FIRST).delay_ms == MAX_DELAY_MS
    assert decide(429, 1, FIRST).delay_ms == BACK_OFF_MS[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("120", 120_000),
        (" 3 ", 3_000),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("9" * 40, MAX_DELAY_MS),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, expected: int | None) -> None:
    assert read_retry_after(text, 1_700_000_000_000) == expected


def test_failures_in_a_row_hold_the_webhook_ever_longer() -> None:
    holds = [hold_after(failures) for failures in range(40)]
    assert holds[:5] == [0] * 5
    assert holds == sorted(holds)
    assert holds[-1] == MAX_HOLD_MS
