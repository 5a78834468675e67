"""Rules, settings and users by the admin client of confluent-kafka, with and without the rights for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.eventually import eventually
from support.secure_brokers import add_user, address_of, create, in_thread
from support.whole_brokers import Brokers, run

PATIENCE_S = 20
EVERYTHING = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def rule(
    user: str,
    operation: AclOperation,
    name: str,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, f"User:{user}", "*", operation, permission)


def with_admins(tmp_path: Path, work: Any) -> None:
    """Run `work` with the admin clients of a super user and of alice, a user without rights."""

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        for user in ("root", "alice"):
            await add_user(harness, user, "secret")
        settings = {
            "bootstrap.servers": str(address_of(brokers, 1, "SASL_PLAINTEXT")),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.password": "secret",
            "log_level": 3,
        }
        root, alice = ({**settings, "sasl.username": user} for user in ("root", "alice"))
        await in_thread(lambda: create(root, "orders"))
        await in_thread(lambda: work(AdminClient(root), AdminClient(alice)))

    run(
        tmp_path,
        scenario,
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        super_users="User:root",
        authorization_mode="enforce",
    )


def test_rules_are_created_described_and_deleted(tmp_path: Path) -> None:
    rules = {
        rule("alice", AclOperation.READ, "orders"),
        rule("alice", AclOperation.WRITE, "ord", ResourcePatternType.PREFIXED),
        rule("bob", AclOperation.ALL, "*", permission=AclPermissionType.DENY),
    }

    def work(root: AdminClient, alice: AdminClient) -> None:
        for created in root.create_acls(list(rules)).values():
            created.result(PATIENCE_S)
        assert set(root.describe_acls(EVERYTHING).result(PATIENCE_S)) == rules
        matching = AclBindingFilter(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.MATCH,
            "User:alice",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        of_alice = {each for each in rules if each.principal == "User:alice"}
        assert set(root.describe_acls(matching).result(PATIENCE_S)) == of_alice
        eventually(lambda: "orders" in alice.list_topics(timeout=PATIENCE_S).topics)
        [deleted] = root.delete_acls([matching]).values()
        assert set(deleted.result(PATIENCE_S)) == of_alice
        assert set(root.describe_acls(EVERYTHING).result(PATIENCE_S)) == rules - of_alice
        eventually(lambda: "orders" not in alice.list_topics(timeout=PATIENCE_S).topics)
        [deleted] = root.delete_acls([matching]).values()
        assert deleted.result(PATIENCE_S) == []

    with_admins(tmp_path, work)


def test_user_without_rights_changes_neither_rules_nor_users_nor_settings(tmp_path: Path) -> None:
    own, other = rule("alice", AclOperation.ALL, "*"), rule("bob", AclOperation.READ, "orders")
    credential = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"mine", b"salt"
    )

    def work(root: AdminClient, alice: AdminClient) -> None:
        root.create_acls([other])[other].result(PATIENCE_S)
        refused = {
            "create": alice.create_acls([own])[own],
            "delete": alice.delete_acls([EVERYTHING])[EVERYTHING],
            "password": alice.alter_user_scram_credentials([credential])["alice"],
        }
        outcomes = {name: future.exception(PATIENCE_S) for name, future in refused.items()}
        assert {name: error and error.args[0].name() for name, error in outcomes.items()} == dict.fromkeys(
            refused, "CLUSTER_AUTHORIZATION_FAILED"
        )
        # librdkafka returns an empty list for a refused DescribeAcls; the matrix of rights checks the error.
        assert alice.describe_acls(EVERYTHING).result(PATIENCE_S) == []
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            set_retention(alice, "1000")
        assert root.describe_acls(EVERYTHING).result(PATIENCE_S) == [other]
        root.create_acls([rule("alice", AclOperation.ALTER_CONFIGS, "orders")])
        eventually(lambda: set_retention(alice, "2000") == "2000", ignoring=(KafkaException,))

    with_admins(tmp_path, work)


def set_retention(admin: AdminClient, value: str) -> str:
    """Set the retention, and return the one that the broker shows afterwards."""
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    [altered] = admin.incremental_alter_configs([resource]).values()
    altered.result(PATIENCE_S)
    [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")]).values()
    shown: str = described.result(PATIENCE_S)["retention.ms"].value
    return shown
