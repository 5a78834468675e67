from __future__ import annotations

from pathlib import Path

from penstock.config import BROKER_OPTIONS, TOPIC_OPTIONS
from penstock.config.reference import render

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_page_matches_the_declarations() -> None:
    assert PAGE.read_text() == render(), "run `make format`"


def test_every_option_is_on_the_page() -> None:
    page = render()
    missing = [name for name in [*BROKER_OPTIONS, *TOPIC_OPTIONS] if f"| `{name}` |" not in page]
    assert missing == []


def test_large_numbers_are_also_shown_in_units() -> None:
    assert "| `retention.ms` | `1209600000` (14 days) |" in render()
    assert "| `segment.bytes` | `1073741824` (1 GiB) |" in render()
