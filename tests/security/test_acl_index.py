"""Access control lists: the index decides as a slow, obvious implementation of Kafka's rules does."""

from __future__ import annotations

from time import perf_counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.security.acl import (
    ANY_USER,
    IMPLIED,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourcePattern,
    ResourceType,
)
from penstock.security.acl_index import AclIndex
from penstock.security.acl_policy import AclPolicy

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ASKED = [operation for operation in Operation if operation is not Operation.ALL]

names = st.sampled_from(["a", "ab", "abc", "abd", "b", "*", "a*", "orders"])
principals = st.sampled_from(["User:alice", "User:bob", ANY_USER])
hosts = st.sampled_from(["*", "10.0.0.1", "10.0.0.2"])
bindings = st.builds(
    AclBinding,
    st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), names, st.sampled_from(PatternType)),
    st.builds(AccessControlEntry, principals, hosts, st.sampled_from(Operation), st.sampled_from(Permission)),
)
requests = st.tuples(
    st.sampled_from(["User:alice", "User:bob", "User:carol"]),
    st.sampled_from(["10.0.0.1", "10.0.0.3"]),
    st.sampled_from(ASKED),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["a", "ab", "abc", "abcd", "b", "orders", "xab"]),
)
Asked = tuple[str, str, Operation, ResourceType, str]


def index_of(rules: set[AclBinding]) -> AclIndex:
    lists: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for rule in rules:
        lists.setdefault(rule.resource, set()).add(rule.entry)
    return AclIndex(lists)


def obvious(rules: set[AclBinding], asked: Asked, *, unruled: bool = False) -> bool:
    """Kafka's rules, one after the other, for each rule there is."""
    principal, host, operation, kind, name = asked
    on_resource = []
    for rule in rules:
        resource = rule.resource
        if resource.kind is kind and (
            (resource.pattern is LITERAL and resource.name in ("*", name))
            or (resource.pattern is PREFIXED and name[: len(resource.name)] == resource.name)
        ):
            on_resource.append(rule.entry)
    mine = [
        entry
        for entry in on_resource
        if entry.principal in (principal, "User:*") and entry.host in (host, "*")
    ]
    if any(entry.permission is DENY and entry.operation in (operation, Operation.ALL) for entry in mine):
        return False
    for entry in mine:
        implied = IMPLIED.get(entry.operation, ())
        if entry.permission is ALLOW and (
            entry.operation in (operation, Operation.ALL) or operation in implied
        ):
            return True
    return unruled and not on_resource


def decided(index: AclIndex, asked: Asked, *, unruled: bool = False) -> bool:
    principal, host, operation, kind, name = asked
    bits = index.judge(principal, host, kind, name).permitted(unless_ruled=unruled)
    return bool(bits >> operation & 1)


@given(st.sets(bindings, max_size=12), st.lists(requests, max_size=8), st.booleans())
def test_index_decides_as_the_obvious_implementation(
    rules: set[AclBinding], asked: list[Asked], unruled: bool
) -> None:
    index = index_of(rules)
    for each in asked:
        assert decided(index, each, unruled=unruled) == obvious(rules, each, unruled=unruled)
        rule = index.deciding_rule(*each)
        if rule is not None:
            assert rule in rules
            assert (rule.entry.permission is ALLOW) == obvious(rules, each)


@given(
    st.lists(st.tuples(st.booleans(), bindings), max_size=20),
    st.lists(requests, min_size=1, max_size=6),
)
def test_policy_decides_by_the_present_rules_after_every_change(
    changes: list[tuple[bool, AclBinding]], asked: list[Asked]
) -> None:
    policy = AclPolicy(AclIndex(), ["User:root"], allows_unruled=False)
    rules: set[AclBinding] = set()
    for is_added, binding in changes:
        (rules.add if is_added else rules.discard)(binding)
        policy.put(binding.resource, [rule.entry for rule in rules if rule.resource == binding.resource])
        for principal, host, operation, kind, name in asked:
            user = Principal("User", principal.removeprefix("User:"))
            bits = policy.permitted(user, host, kind, name)
            assert bool(bits >> operation & 1) == obvious(rules, (principal, host, operation, kind, name))
            assert policy.permitted(Principal("User", "root"), host, kind, name) >> operation & 1


def obvious_any(rules: set[AclBinding], principal: str, host: str) -> bool:
    """Whether WRITE is allowed on any topic: an allowed pattern that no denied pattern covers."""
    mine = [
        rule
        for rule in rules
        if rule.resource.kind is TOPIC
        and rule.entry.principal in (principal, "User:*")
        and rule.entry.host in (host, "*")
        and rule.entry.operation in (Operation.WRITE, Operation.ALL)
    ]
    denied = [rule.resource for rule in mine if rule.entry.permission is DENY]
    allowed = [rule.resource for rule in mine if rule.entry.permission is ALLOW]
    everything = ResourcePattern(TOPIC, "*")
    if everything in denied:
        return False
    if everything in allowed:
        return True
    return any(
        each not in denied
        and not any(no.pattern is PREFIXED and each.name.startswith(no.name) for no in denied)
        for each in allowed
    )


@given(st.sets(bindings, max_size=12))
@example(
    {
        AclBinding(
            ResourcePattern(TOPIC, "a", PREFIXED), AccessControlEntry(ANY_USER, "*", Operation.WRITE, DENY)
        )
    }
)
def test_write_on_any_topic_is_decided_as_in_kip_679(rules: set[AclBinding]) -> None:
    index = index_of(rules)
    for principal, host in (("User:alice", "10.0.0.1"), ("User:carol", "10.0.0.3")):
        found = index.may_on_any(principal, host, Operation.WRITE, TOPIC)
        assert found == obvious_any(rules, principal, host)


@given(st.sets(bindings, max_size=12), names, st.booleans())
def test_match_filter_finds_the_patterns_of_a_resource(
    rules: set[AclBinding], name: str, is_match: bool
) -> None:
    wanted = AclFilter(TOPIC, name, is_match=is_match)
    for rule in rules:
        resource = rule.resource
        if is_match:
            is_prefix = resource.pattern is PREFIXED and name.startswith(resource.name)
            expected = is_prefix or (resource.pattern is LITERAL and resource.name in (name, "*"))
        else:
            expected = resource.name == name
        assert wanted.matches_resource(resource) == (expected and resource.kind is TOPIC)


@pytest.mark.slow
def test_uncached_decision_is_quick_with_100_000_rules() -> None:
    """An undemanding bound: a scan of all rules would take thousands of times longer."""
    index = AclIndex()
    for number in range(50_000):
        entry = AccessControlEntry(f"User:u{number % 1_000}", "*", Operation.READ, ALLOW)
        index.put(ResourcePattern(TOPIC, f"topic-{number}"), [entry])
        index.put(ResourcePattern(TOPIC, f"team-{number}-", PREFIXED), [entry])
    started = perf_counter()
    for number in range(1_000):
        index.judge("User:u7", "10.0.0.1", TOPIC, f"team-{number}-orders")
    assert perf_counter() - started < 0.5
