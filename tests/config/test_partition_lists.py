"""Options that list replicas."""

from __future__ import annotations

import pytest

from penstock.config import LEADER_REPLICATION_THROTTLED_REPLICAS as OPTION
from penstock.errors import ConfigError


def test_replicas_are_named_by_partition_and_broker() -> None:
    named = OPTION.parse(" 0:1, 7:2 ")
    assert (0, 1) in named
    assert (7, 2) in named
    assert (1, 0) not in named
    assert OPTION.parse(OPTION.format(named)) == named


def test_star_means_all_and_empty_means_none() -> None:
    assert (5, 5) in OPTION.parse("*")
    assert (5, 5) not in OPTION.parse("")
    assert OPTION.format(OPTION.parse("*")) == "*"
    assert OPTION.format(OPTION.parse("")) == ""


@pytest.mark.parametrize(
    "text", ["1", "1:", ":1", "a:b", "1:2:3", "*,1:2", "-1:2", "1:2;3:4", "9" * 11 + ":1"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="partition:broker"):
        OPTION.parse(text)
