"""Every API has a declared right (`support/rights.py`)."""

from __future__ import annotations

from penstock.server.handlers import all_apis
from support.rights import NEEDS, PRIVATE


def test_every_api_has_a_declared_right() -> None:
    assert {api.key for api in all_apis()} == NEEDS.keys() | PRIVATE.keys()
