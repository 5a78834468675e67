"""Acknowledgements of neighbouring offsets are decided as one range."""

from __future__ import annotations

from penstock.queues.acknowledgement_checks import joined
from penstock.queues.states import Acknowledgement, AcknowledgeType

ACCEPT, RELEASE = bytes((AcknowledgeType.ACCEPT,)), bytes((AcknowledgeType.RELEASE,))


def test_accepts_of_adjacent_offsets_are_joined_into_one_range() -> None:
    asked = [Acknowledgement(offset, offset, ACCEPT) for offset in (3, 4, 5, 7, 8)]
    assert joined(asked, 100) == [Acknowledgement(3, 5, ACCEPT), Acknowledgement(7, 8, ACCEPT)]


def test_acknowledgements_of_other_types_are_not_joined() -> None:
    asked = [
        Acknowledgement(1, 1, RELEASE),
        Acknowledgement(2, 2, RELEASE),
        Acknowledgement(3, 4, ACCEPT * 2),
    ]
    assert joined(asked, 100) == asked


def test_acknowledgement_of_an_unacquired_offset_is_refused_alone() -> None:
    asked = [Acknowledgement(offset, offset, ACCEPT) for offset in (3, 4, 5)]
    assert joined(asked, 5) == [Acknowledgement(3, 4, ACCEPT), Acknowledgement(5, 5, ACCEPT)]
