"""Serializers and deserializers of keys and values, and their errors."""

from __future__ import annotations

import pytest

from penstock import InvalidSetting, Message, NotDeserializable, NotSerializable
from penstock.client.serializers import deserializer, serialize, serializer


@pytest.mark.parametrize("value", ["", "text", "grüße"])
def test_text_values_round_trip(value: str) -> None:
    assert deserializer("str")(serializer("str")(value)) == value
    assert serializer(None)(value) == value.encode()


@pytest.mark.parametrize("value", [{"a": [1, None, "ü"]}, 1.5, "x", True])
def test_json_values_round_trip(value: object) -> None:
    assert deserializer("json")(serializer("json")(value)) == value


def test_bytes_of_every_kind_are_taken_as_they_are() -> None:
    for value in (b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")):
        assert serializer("bytes")(value) == serializer(None)(value) == b"\x00\xff"


def test_functions_are_accepted_as_serializers() -> None:
    assert serialize(serializer(lambda number: b"%d" % number), 7, "key") == b"7"
    assert deserializer(int)(b"7") == 7


@pytest.mark.parametrize(("chosen", "value"), [("bytes", "x"), ("str", b"x"), ("json", b"x"), (None, 1)])
def test_another_type_is_refused(chosen: object, value: object) -> None:
    with pytest.raises(NotSerializable, match="the key cannot be sent"):
        serialize(serializer(chosen), value, "key")  # type: ignore[arg-type]


def test_none_is_no_value_whatever_the_serializer() -> None:
    assert serialize(serializer("json"), None, "value") is None
    assert Message("t", 0, 0, 0, None, None, (), deserializer("json"), deserializer("json")).value is None


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(InvalidSetting, match="bytes, str, json"):
        serializer("xml")  # type: ignore[arg-type]


def test_bytes_that_do_not_fit_are_still_there_raw() -> None:
    message = Message("t", 3, 9, -1, b"k", b"{", (), deserializer("str"), deserializer("json"))
    assert (message.key, message.timestamp) == ("k", None)
    with pytest.raises(NotDeserializable, match="the value of t-3 at 9"):
        _ = message.value
    assert message.raw == b"{"
