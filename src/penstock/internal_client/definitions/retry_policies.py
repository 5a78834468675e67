"""Retry policies of consumer groups in a definitions document. The configs of their retry topics store them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config.retry_backoff import parse_retry_backoff
from penstock.config.retry_options import RETRY_GROUP
from penstock.delay.retry_names import retry_topic
from penstock.delay.retry_policy import RetryPolicy, default_policy, read_policy
from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import ApplyStep, DefinitionSection, Entry, Right


class RetryPolicySection(DefinitionSection):
    name = "retry_policies"
    noun = "retry policy of group"

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        found = []
        for name, (_, configs) in sorted((await reading.topics()).items()):
            group = configs.get(RETRY_GROUP.name, "")
            policy = read_policy(group, configs) if group and retry_topic(group) == name else None
            if policy is not None:
                found.append(policy_entry(policy))
        return found

    def identity(self, entry: Entry) -> str:
        return str(entry["group"])

    def normal(self, entry: Entry) -> Entry:
        return policy_entry(_policy(entry))

    def problem(self, entry: Entry) -> str:
        try:
            parse_retry_backoff(entry.get("back_off", ""))
        except ValueError as error:
            return f"back_off: {error}"
        return ""

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.retry_policies.set(_policy(entry))

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        await cluster.retry_policies.set(_policy(step.entry))

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.retry_policies.delete(entry["group"])

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        policy = _policy(step.entry)
        yield "ALTER_CONFIGS", "GROUP", policy.group
        if step.action != "delete":
            yield "CREATE", "TOPIC", policy.topic
            yield "ALTER_CONFIGS", "TOPIC", policy.topic
            if policy.dead_letter:
                yield "WRITE", "TOPIC", policy.dead_letter


def policy_entry(policy: RetryPolicy) -> Entry:
    return {
        "group": policy.group,
        "max_attempts": policy.max_attempts,
        "back_off": policy.back_off,
        "dead_letter": policy.dead_letter,
    }


def _policy(entry: Entry) -> RetryPolicy:
    known = default_policy(entry["group"])
    back_off = entry.get("back_off", known.back_off)
    return RetryPolicy(
        known.group,
        entry.get("max_attempts", known.max_attempts),
        str(parse_retry_backoff(back_off)),
        entry.get("dead_letter", known.dead_letter),
    )
