"""Kafka's authorizer beside ours: the same random rules and questions, `make authorizer-oracle`.

Needs Java and Maven, which fetches Kafka's jars. Prints every difference with its rules and fails if there is one.
`NOT_ASKED` lists what cannot be compared.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.kafka_install import KAFKA_VERSION, KafkaUnavailable, kafka_libs
from penstock.security.acl import (
    ANY_USER,
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourcePattern,
    ResourceType,
)
from penstock.security.acl_index import AclIndex
from penstock.security.acl_policy import AclPolicy

PROGRAM = Path(__file__).parent / "kafka_authorizer" / "Decisions.java"
QUESTIONS_PER_CASE = 25
ANY_SHARE = 0.1
"""Share of questions about any resource of a type (KIP-679)."""
NOT_ASKED = {
    "*": "Kafka's authorizer fails with an IllegalArgumentException for a user with this name; ours decides."
}
"""Users for which there is no decision to compare, with the reason."""

_ASKED = [each for each in Operation if each is not Operation.ALL]
_NAMES = [
    "a",
    "ab",
    "abc",
    "abcd",
    "b",
    "orders",
    "orders-eu",
    "order",
    "*",
    "a*",
    "Ä",
    "\U0001f600x",
    "\uff5ex",
    "x.y",
]
_USERS = ["alice", "bob", "carol", "alice:x", "CN=alice,O=Ä"]
_HOSTS = ["10.0.0.1", "10.0.0.2", "10.0.0.11"]


@dataclass
class Case:
    """Rules of a cluster, and questions about them."""

    allows_unruled: bool
    super_users: list[str]
    rules: list[AclBinding]
    asked: list[tuple[str, str, Operation, ResourceType, str]] = field(default_factory=list)
    """Principal, host, operation, resource type and name; an empty name asks for any resource."""

    def lines(self) -> Iterator[str]:
        """The case for the Java program."""
        yield f"NEW\t{str(self.allows_unruled).lower()}\t{';'.join(self.super_users)}"
        for rule in self.rules:
            resource, entry = rule.resource, rule.entry
            place = f"{resource.kind.name}\t{resource.name}\t{resource.pattern.name}"
            yield f"RULE\t{place}\t{entry.principal}\t{entry.host}\t{entry.operation.name}\t{entry.permission.name}"
        for principal, host, operation, kind, name in self.asked:
            words = f"{principal}\t{host}\t{operation.name}\t{kind.name}"
            yield f"ASK\t{words}\t{name}" if name else f"ANY\t{words}"

    def decisions(self) -> list[bool]:
        """Our decisions."""
        lists: dict[ResourcePattern, list[AccessControlEntry]] = {}
        for rule in self.rules:
            lists.setdefault(rule.resource, []).append(rule.entry)
        policy = AclPolicy(AclIndex(lists), self.super_users, allows_unruled=self.allows_unruled)
        return [self._decide(policy, *each) for each in self.asked]

    @staticmethod
    def _decide(
        policy: AclPolicy, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        who = Principal(*principal.split(":", 1))
        if not name:
            return policy.permits_any(who, host, operation, kind)
        return bool(policy.permitted(who, host, kind, name) >> operation & 1)


def draw_case(random: Random) -> Case:
    case = Case(
        random.random() < 0.2,
        ["User:root"] if random.random() < 0.5 else [],
        [_draw_rule(random) for _ in range(random.choice([0, 1, 2, 4, 8, 20, 60]))],
    )
    case.rules = list(dict.fromkeys(case.rules))
    for _ in range(QUESTIONS_PER_CASE):
        kind = random.choice(list(ResourceType))
        user = random.choice(["root", *_USERS])
        # Only the resource types with names have more than one resource.
        is_any = random.random() < ANY_SHARE and kind is not ResourceType.CLUSTER
        name = "" if is_any else CLUSTER_NAME if kind is ResourceType.CLUSTER else random.choice(_NAMES)
        case.asked.append((f"User:{user}", random.choice(_HOSTS), random.choice(_ASKED), kind, name))
    return case


def _draw_rule(random: Random) -> AclBinding:
    kind = random.choice(list(ResourceType))
    pattern = PatternType.LITERAL if kind is ResourceType.CLUSTER else random.choice(list(PatternType))
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else random.choice(_NAMES)
    principal = ANY_USER if random.random() < 0.2 else f"User:{random.choice(_USERS)}"
    host = "*" if random.random() < 0.6 else random.choice(_HOSTS)
    permission = Permission.DENY if random.random() < 0.25 else Permission.ALLOW
    entry = AccessControlEntry(principal, host, random.choice(list(Operation)), permission)
    return AclBinding(ResourcePattern(kind, name, pattern), entry)


def kafka_decisions(cases: list[Case]) -> list[bool]:
    """Decisions of Kafka's StandardAuthorizer about all questions, in their order."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = ["java", quiet, "-cp", f"{kafka_libs()}/*", str(PROGRAM)]
    lines = "".join(f"{line}\n" for case in cases for line in case.lines())
    done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4_000:]
    answers = [each for each in done.stdout.decode().split() if each in ("ALLOWED", "DENIED")]
    return [each == "ALLOWED" for each in answers]


def main(seed: int, count: int) -> int:
    random = Random(seed)
    cases = [draw_case(random) for _ in range(-(-count // QUESTIONS_PER_CASE))]
    try:
        theirs = kafka_decisions(cases)
    except KafkaUnavailable as error:
        print(f"skipped: {error}")
        return 0
    ours = [decision for case in cases for decision in case.decisions()]
    asked = [(case, question) for case in cases for question in case.asked]
    assert len(ours) == len(theirs) == len(asked), (len(ours), len(theirs))
    differences = 0
    for (case, question), mine, other in zip(asked, ours, theirs, strict=True):
        if mine != other:
            differences += 1
            shown = "\n  ".join(str(rule) for rule in case.rules)
            print(f"{question}: ours {mine}, Kafka {other}; unruled {case.allows_unruled}\n  {shown}")
    print(
        f"{len(ours)} decisions with Kafka {KAFKA_VERSION}, seed {seed}: {sum(ours)} allowed, "
        f"{differences} differences"
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
