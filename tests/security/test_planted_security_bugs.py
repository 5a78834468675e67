"""Bugs that are planted in decisions, quotas and logins one by one: a test notices each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import test_on_behalf as on_behalf
import test_quota_rules as quota_rules
import test_sasl_answers as logins
import test_scram as scram
from authorizer_oracle import draw_case
from test_acl_index import obvious

from penstock.net.acting import split_actor
from penstock.security import acl_index, quota
from penstock.security.acl import AclBinding, Operation, PatternType, Permission, Principal, ResourceType
from penstock.security.acl_index import AclIndex, AclVerdict
from penstock.security.acl_policy import AclPolicy
from penstock.security.scram import ScramServer
from penstock.server import dispatch
from penstock.server.sasl.gate import Gate
from penstock.server.security import OnBehalf
from support.eventually import eventually

CASES = 200


def check_decisions() -> None:
    """Compare decisions about random rules with the obvious implementation."""
    random = Random(7)
    for _ in range(CASES):
        case = draw_case(random)
        case.super_users = []
        for question, decision in zip(case.asked, case.decisions(), strict=True):
            if question[4]:
                expected = obvious(set(case.rules), question, unruled=case.allows_unruled)
                assert decision == expected, question


def test_decisions_are_those_of_the_obvious_implementation() -> None:
    check_decisions()


def test_deny_that_is_ignored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AclVerdict, "permitted", lambda self, **_: self.allowed)
    with pytest.raises(AssertionError):
        check_decisions()


def test_prefix_that_matches_inside_a_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AclIndex._matching

    def matching(self: AclIndex, kind: ResourceType, name: str) -> Iterator[Any]:
        yield from real(self, kind, name)
        for prefix, resource in self._resources[PatternType.PREFIXED][kind].items():
            if prefix in name and not name.startswith(prefix):
                yield resource

    monkeypatch.setattr(AclIndex, "_matching", matching)
    with pytest.raises(AssertionError):
        check_decisions()


def test_wildcard_that_is_taken_for_a_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_index, "WILDCARD", "\0")
    with pytest.raises(AssertionError):
        check_decisions()


def test_host_that_is_ignored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AclIndex.judge

    def judge(self: AclIndex, principal: str, host: str, kind: ResourceType, name: str) -> AclVerdict:
        found = [real(self, principal, each, kind, name) for each in (host, "10.0.0.1", "10.0.0.2")]
        allowed, denied = found[0].allowed, found[0].denied
        for each in found:
            allowed, denied = allowed | each.allowed, denied | each.denied
        return AclVerdict(allowed, denied, found[0].has_rules)

    monkeypatch.setattr(AclIndex, "judge", judge)
    with pytest.raises(AssertionError):
        check_decisions()


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_describe_that_is_not_implied_is_noticed(
    monkeypatch: pytest.MonkeyPatch, operation: Operation
) -> None:
    monkeypatch.setitem(acl_index._BITS, (Permission.ALLOW, operation), 1 << operation)
    with pytest.raises(AssertionError):
        check_decisions()


def test_describe_that_a_denied_read_denies_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = 1 << Operation.READ | 1 << Operation.DESCRIBE
    monkeypatch.setitem(acl_index._BITS, (Permission.DENY, Operation.READ), bits)
    with pytest.raises(AssertionError):
        check_decisions()


def check_changes() -> None:
    """Compare decisions with the obvious implementation after every change of random rules."""
    random = Random(3)
    case = draw_case(random)
    policy = AclPolicy(AclIndex(), (), allows_unruled=False)
    rules: set[AclBinding] = set()
    for number in range(CASES):
        fresh = draw_case(random)
        rules = set(fresh.rules) if number % 2 else set()
        for resource in {rule.resource for rule in (*case.rules, *fresh.rules)}:
            policy.put(resource, [rule.entry for rule in rules if rule.resource == resource])
        for principal, host, operation, kind, name in fresh.asked:
            if name:
                who = Principal(*principal.split(":", 1))
                decision = bool(policy.permitted(who, host, kind, name) >> operation & 1)
                assert decision == obvious(rules, (principal, host, operation, kind, name))
        case = fresh


def test_decisions_follow_changes() -> None:
    check_changes()


def test_stale_decision_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AclPolicy, "_forget", lambda self: None)
    with pytest.raises(AssertionError):
        check_changes()


def test_removed_rule_that_stays_in_force_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AclPolicy.put
    monkeypatch.setattr(AclPolicy, "put", lambda self, where, entries: entries and real(self, where, entries))
    with pytest.raises(AssertionError):
        check_changes()


def test_client_named_by_anybody_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(session: object, client_id: str) -> tuple[str, OnBehalf | None]:
        own, actor = split_actor(client_id)
        return own, None if actor is None else OnBehalf(Principal("User", actor.user), actor.host)

    monkeypatch.setattr(dispatch, "_named_client", named)
    with pytest.raises(pytest.fail.Exception):
        on_behalf.test_only_gateways_may_name_others(tmp_path)


def test_quota_of_the_user_before_that_of_its_client_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = quota.limit_of

    def user_first(quotas: Any, key: Any, user: str, client_id: str) -> Any:
        return real(quotas, key, user, "") or real(quotas, key, user, client_id)

    monkeypatch.setattr(quota_rules, "limit_of", user_first)
    with pytest.raises(BaseException, match=r"(?s).*"):
        quota_rules.test_most_specific_quota_is_in_force()


def test_nonce_that_is_not_checked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScramServer, "_is_nonce", lambda self, given: True)
    with pytest.raises(pytest.fail.Exception):
        scram.test_nonce_that_librdkafka_repeats_is_accepted("other", False)


def _forget_user(real: Callable[..., Any]) -> Callable[..., Any]:
    def on_step(self: Gate, step: Any, *rest: Any) -> Any:
        if step.login is not None and self._session.login is not None:
            self._session.principal = Principal("User", step.login.user)
        return real(self, step, *rest)

    return on_step


def test_login_again_as_another_user_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "_on_step", _forget_user(Gate._on_step))
    with pytest.raises(AssertionError):
        logins.test_login_again_must_be_as_the_same_user(tmp_path)


@pytest.mark.slow
def test_login_that_never_expires_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "has_expired", False)
    monkeypatch.setattr(logins, "eventually", _impatient(eventually))
    with pytest.raises(AssertionError):
        logins.test_request_after_the_lifetime_closes_the_connection(tmp_path)


def _impatient(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: real(*arguments, **{**options, "within_s": 2.0})


def test_throttle_without_muting_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_rules.Client, "mute", None)
    with pytest.raises(AssertionError):
        quota_rules.test_producer_at_ten_times_its_quota_is_held_within_five_percent()
