"""Rules by Kafka's own kafka-acls, and quotas of users, clients and addresses by kafka-configs, over TLS and SASL."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from users import MAIN, KafkaConfigs

ACLS = "org.apache.kafka.tools.AclCommand"
ALICE = ("--allow-principal", "User:alice")
TOPIC = ("--topic", "orders")


def main(bootstrap: str, authority: str, user: str, password: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        tool = KafkaConfigs(bootstrap, authority, user, password, Path(file.name))

        def expect(main: str, *arguments: str, has: str = "", lacks: str = "\0") -> None:
            output = tool.run_main(main, *arguments)
            assert has in output, f"{arguments}: {output}"
            assert lacks not in output, f"{arguments}: {output}"
            print(f"{' '.join(arguments)}: {has or 'no mention of ' + lacks}")

        writes = "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)"
        expect(ACLS, "--add", *ALICE, "--producer", *TOPIC, has=writes)
        expect(ACLS, "--list", *TOPIC, has=writes)
        prefixed = ("--resource-pattern-type", "prefixed")
        expect(ACLS, "--add", *ALICE, "--operation", "Read", "--topic", "ord", *prefixed, has="PREFIXED")
        expect(
            ACLS, "--list", *TOPIC, "--resource-pattern-type", "match", has="name=ord, patternType=PREFIXED"
        )
        expect(ACLS, "--remove", "--force", *ALICE, "--operation", "Write", *TOPIC, lacks="rror")
        expect(ACLS, "--list", *TOPIC, has="operation=CREATE", lacks="operation=WRITE")
        expect(ACLS, "--remove", "--force", *ALICE, "--operation", "Write", *TOPIC, lacks="rror")

        for kind, name, quota, shown in (
            ("users", "alice", "producer_byte_rate=1048576", "user-principal 'alice'"),
            ("clients", "app", "consumer_byte_rate=5", "client-id 'app'"),
            ("ips", "127.0.0.9", "connection_creation_rate=5", "ip '127.0.0.9'"),
        ):
            entity = ("--entity-type", kind, "--entity-name", name)
            expect(MAIN, "--alter", *entity, "--add-config", quota, has="Completed updating config for")
            expect(MAIN, "--describe", *entity, has=f"Quota configs for {shown} are {quota}.0")
            removed = quota.partition("=")[0]
            expect(MAIN, "--alter", *entity, "--delete-config", removed, has="Completed updating config for")
            expect(MAIN, "--describe", *entity, lacks=removed)


if __name__ == "__main__":
    main(*sys.argv[1:5])
