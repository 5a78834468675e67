"""The checker of histories: it finds each kind of violation, and accepts a correct log."""

from __future__ import annotations

from history import History, Sent, Stored


def history(count: int) -> History:
    made = History()
    for number in range(count):
        made.sent.add(Sent(1, 0, number))
        made.acknowledged[Sent(1, 0, number)] = number
    return made


def stored(*numbers: int) -> list[Stored]:
    return [Stored(0, offset, Sent(1, 0, number)) for offset, number in enumerate(numbers)]


def test_history_of_an_intact_log_has_no_violations() -> None:
    assert history(3).violations(stored(0, 1, 2)) == []


def test_an_unacknowledged_message_may_be_stored_once() -> None:
    made = history(2)
    made.sent.add(Sent(1, 0, 2))
    assert made.violations(stored(0, 1, 2)) == []
    assert made.violations(stored(0, 1)) == []


def test_history_checker_finds_a_lost_message() -> None:
    assert history(3).violations(stored(0, 1)) == [
        "acknowledged at 2, lost: Sent(producer=1, partition=0, number=2)"
    ]


def test_history_checker_finds_a_duplicate_message() -> None:
    assert any(sentence.startswith("twice") for sentence in history(3).violations(stored(0, 1, 2, 2)))


def test_history_checker_finds_messages_out_of_order() -> None:
    made = history(3)
    made.acknowledged = dict.fromkeys(made.acknowledged, -1)
    assert [sentence[:12] for sentence in made.violations(stored(0, 2, 1))] == ["out of order"]


def test_finds_a_message_at_another_offset_than_was_answered() -> None:
    made = history(2)
    made.acknowledged[Sent(1, 0, 1)] = 7
    assert [sentence[:17] for sentence in made.violations(stored(0, 1))] == ["answered offset 7"]


def test_finds_a_message_that_was_not_sent_to_this_partition() -> None:
    assert any("never sent" in sentence for sentence in history(1).violations(stored(0, 5)))
    elsewhere = [Stored(3, 0, Sent(1, 0, 0))]
    assert any("never sent" in sentence for sentence in history(1).violations(elsewhere))


def test_finds_offsets_that_do_not_rise() -> None:
    again = [Stored(0, 0, Sent(1, 0, 0)), Stored(0, 0, Sent(1, 0, 1))]
    made = history(2)
    made.acknowledged = dict.fromkeys(made.acknowledged, -1)
    assert [sentence[:20] for sentence in made.violations(again)] == ["offset does not rise"]


def test_a_message_names_its_sender() -> None:
    sent = Sent(3, 2, 77)
    assert Sent.decode(sent.encode(b"some padding with spaces")) == sent
