from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.message_id import TEXT_LENGTH, MailboxMessageId, decode, encode
from penstock.model import TopicId

TOPIC = TopicId(UUID(int=7))
places = st.builds(
    MailboxMessageId, st.integers(0, 65_535), st.integers(0, 2**63 - 1), st.integers(0, 65_535)
)


@given(places, st.binary(max_size=20))
def test_id_decodes_to_its_position(place: MailboxMessageId, user: bytes) -> None:
    text = encode(place, TOPIC, user)
    assert len(text) == TEXT_LENGTH
    assert decode(text, TOPIC, user) == place


@given(places, places)
def test_ids_sort_by_layout_and_offset(one: MailboxMessageId, other: MailboxMessageId) -> None:
    if one[:2] != other[:2]:
        assert (encode(one, TOPIC, b"u") < encode(other, TOPIC, b"u")) == (one < other)


@given(places)
def test_id_of_another_user_or_topic_is_refused(place: MailboxMessageId) -> None:
    text = encode(place, TOPIC, b"ann")
    assert decode(text, TOPIC, b"bob") is None
    assert decode(text, TopicId(UUID(int=8)), b"ann") is None


@given(places, st.integers(0, TEXT_LENGTH - 1), st.characters())
def test_mistyped_id_is_refused(place: MailboxMessageId, position: int, character: str) -> None:
    text = encode(place, TOPIC, b"ann")
    mistyped = text[:position] + character + text[position + 1 :]
    if mistyped != text:
        assert decode(mistyped, TOPIC, b"ann") is None


@given(st.text(max_size=40))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    decode(text, TOPIC, b"ann")
