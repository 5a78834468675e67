"""Bugs that are planted in the rights and quotas of a broker one by one: a scenario notices each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import test_acl_handlers as acl_handlers
import test_quota_handlers as quota_handlers

from penstock.security.acl_policy import AclPolicy
from penstock.server.authorization import Authorization
from penstock.server.client_quotas import ClientQuotas


def test_stale_decision_of_a_broker_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AclPolicy, "_forget", lambda self: None)
    with pytest.raises(AssertionError):
        acl_handlers.test_a_changed_rule_is_applied_at_once_although_decisions_are_remembered(tmp_path)


def test_change_of_rules_without_effect_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Authorization, "_apply_acls", lambda self, after: None)
    with pytest.raises(AssertionError):
        acl_handlers.test_a_changed_rule_is_applied_at_once_although_decisions_are_remembered(tmp_path)


def test_throttle_time_without_muting_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ClientQuotas._finish

    class Unmuted:
        def __init__(self, session: Any) -> None:
            self.principal, self.mute = session.principal, None

    monkeypatch.setattr(
        ClientQuotas, "_finish", lambda self, session, *rest: real(self, Unmuted(session), *rest)
    )
    with pytest.raises(AssertionError):
        quota_handlers.test_throttled_producer_is_answered_first_and_muted_afterwards(tmp_path, 9)
