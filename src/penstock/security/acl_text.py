"""Text forms of rules (`topic:orders`, `read,write`, presets), and the fewest rules that permit given
requests. Pure.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterable, Sequence

from penstock.security.acl import (
    CLUSTER_NAME,
    IMPLIED,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
_KIND_NAMES = {kind: name for name, kind in _KINDS.items()}
_READER = (Operation.READ, Operation.DESCRIBE)
PRESETS: dict[str, dict[ResourceType, tuple[Operation, ...]]] = {
    "producer": {
        ResourceType.TOPIC: (Operation.WRITE, Operation.CREATE, Operation.DESCRIBE),
        ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
        ResourceType.CLUSTER: (Operation.IDEMPOTENT_WRITE,),
    },
    "consumer": {ResourceType.TOPIC: _READER, ResourceType.GROUP: (Operation.READ,)},
    "read-only": {
        ResourceType.TOPIC: (*_READER, Operation.DESCRIBE_CONFIGS),
        ResourceType.GROUP: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
        ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE,),
        ResourceType.CLUSTER: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    },
    "admin": dict.fromkeys(ResourceType, (Operation.ALL,)),
}
"""Operations of each preset, by resource type. They are the same as in Kafka's tools for producers and consumers."""


def parse_resource(text: str, *, is_prefix: bool = False) -> ResourcePattern:
    """Resource pattern for `topic:orders`, `group:*` or `cluster`. Raises ValueError with the reason."""
    word, separator, name = text.partition(":")
    kind = _KINDS.get(word.lower())
    if kind is None:
        raise ValueError(
            f"{text[:80]!r} is not a resource; give topic:NAME, group:NAME, transactional-id:NAME or cluster"
        )
    if kind is ResourceType.CLUSTER:
        if (separator and name != CLUSTER_NAME) or is_prefix:
            raise ValueError("the resource cluster has no name and no prefix")
        return ResourcePattern(kind, CLUSTER_NAME)
    if not name:
        raise ValueError(f"{text[:80]!r} has no name; give {word}:NAME, or {word}:* for all")
    return ResourcePattern(kind, name, PatternType.PREFIXED if is_prefix else PatternType.LITERAL)


def parse_operations(text: str, kind: ResourceType) -> tuple[Operation, ...]:
    """Operations of a preset, or of names separated by commas. Raises ValueError with the reason."""
    preset = PRESETS.get(text.lower())
    if preset is not None:
        if kind not in preset:
            raise ValueError(f"the preset {text} has no operations for a {_KIND_NAMES[kind]}")
        return preset[kind]
    supported = (Operation.ALL, *SUPPORTED_OPERATIONS[kind])
    names = {each.name.lower().replace("_", "-"): each for each in supported}
    found = []
    for word in text.split(","):
        operation = names.get(word.strip().lower().replace("_", "-"))
        if operation is None:
            raise ValueError(
                f"{word.strip()[:40]!r} is not an operation of a {_KIND_NAMES[kind]}; give {', '.join(names)}, "
                f"or a preset: {', '.join(PRESETS)}"
            )
        found.append(operation)
    return tuple(found)


def parse_user(text: str) -> str:
    """Principal for a user name or for `User:NAME`; `*` stands for all users."""
    return text if text.startswith("User:") else f"User:{text}"


def check_host(text: str) -> None:
    """Raise ValueError if no client can have this host: rules contain the address of a client, not its name."""
    if text == WILDCARD:
        return
    try:
        address = str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f"{text[:80]!r} is not an IP address; give the address of the client") from None
    if address != text:
        raise ValueError(f"{text[:80]!r}: write the address as {address}")


def rules_of(
    user: str,
    operations: str,
    resources: Iterable[str],
    permission: Permission,
    *,
    is_prefix: bool = False,
    host: str = WILDCARD,
) -> list[AclBinding]:
    """Rules that one command creates. Raises ValueError with the reason."""
    check_host(host)
    rules = []
    for text in resources:
        # `--prefix` applies to all resources that have names.
        resource = parse_resource(text, is_prefix=is_prefix and text.lower() != "cluster")
        if is_prefix and resource.name == WILDCARD:
            raise ValueError(f"{text!r} stands for all names and cannot be a prefix; leave out --prefix")
        for operation in parse_operations(operations, resource.kind):
            entry = AccessControlEntry(parse_user(user), host, operation, permission)
            rules.append(AclBinding(resource, entry))
    return rules


def smallest_rules(requests: Iterable[tuple[str, Operation, ResourceType, str]]) -> list[AclBinding]:
    """Fewest allow rules that permit these requests (principal, operation, type, name). Operations that
    another allowed operation implies have no rule.
    """
    wanted: dict[tuple[str, ResourceType, str], set[Operation]] = {}
    for principal, operation, kind, name in requests:
        wanted.setdefault((principal, kind, name), set()).add(operation)
    rules = []
    for (principal, kind, name), operations in wanted.items():
        implied = {each for operation in operations for each in IMPLIED.get(operation, ())}
        for operation in operations - implied:
            entry = AccessControlEntry(principal, WILDCARD, operation, Permission.ALLOW)
            rules.append(AclBinding(ResourcePattern(kind, name), entry))
    return sorted(rules)


def command_of(resource: ResourcePattern, rules: Sequence[AccessControlEntry]) -> str:
    """The `penstock acl` command that creates these rules, which have the same user, host and permission."""
    entry = rules[0]
    operations = ",".join(each.operation.name.lower().replace("_", "-") for each in sorted(rules))
    options = " --prefix" if resource.pattern is PatternType.PREFIXED else ""
    options += "" if entry.host == WILDCARD else f" --host {entry.host}"
    words = (
        entry.permission.name.lower(),
        entry.principal.removeprefix("User:"),
        operations,
        resource_text(resource),
    )
    return f"penstock acl {' '.join(map(shlex.quote, words))}{options}"


def resource_text(resource: ResourcePattern) -> str:
    """Resource in the syntax of commands, without its pattern type."""
    kind = _KIND_NAMES[resource.kind]
    return kind if resource.kind is ResourceType.CLUSTER else f"{kind}:{resource.name}"
