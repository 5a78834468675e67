"""Users in the coordination store: they survive restarts and elections, on every broker."""

from __future__ import annotations

from pathlib import Path

from penstock.cluster.image import ClusterImage
from penstock.cluster.users import CredentialChange, alter_credentials
from penstock.errors import BrokerError, ErrorCode
from penstock.security.scram import ScramMechanism, ScramRecord
from support.eventually import eventually_async
from support.harness import Harness
from support.sasl_client import SaslClient
from support.secure_brokers import add_user, address_of, delete_user, in_thread
from support.whole_brokers import Brokers, run

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
GOOD = ScramRecord(b"salt", 4096, b"stored", b"server")


async def logs_in(brokers: Brokers, number: int, user: str, password: str) -> bool:
    address = address_of(brokers, number, "SASL_PLAINTEXT")

    def attempt() -> bool:
        with SaslClient(address) as client:
            return bool(client.scram(user, password).error_code == 0)

    return await in_thread(attempt)


def test_users_survive_elections_and_restarts_of_all_brokers(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        for number in (1, 2, 3):
            await brokers.start(number)
        await add_user(Harness(brokers.running[2]), "alice", "secret")
        await add_user(Harness(brokers.running[3]), "bob", "other")
        await brokers.stop(1)
        await delete_user(Harness(brokers.running[3]), "bob")
        await eventually_async(lambda: "bob" not in brokers.running[2]._metadata.image.users)
        assert await logs_in(brokers, 2, "alice", "secret")
        for number in (2, 3):
            await brokers.stop(number)
        for number in (3, 1, 2):
            await brokers.start(number)
            assert await logs_in(brokers, number, "alice", "secret")
            assert not await logs_in(brokers, number, "bob", "other")

    run(tmp_path, scenario, listeners="SASL_PLAINTEXT://127.0.0.1:0")


def outcome(*changes: CredentialChange) -> dict[str, ErrorCode | None]:
    results = alter_credentials(ClusterImage("c"), changes, "credential").result
    return {user: error.code if isinstance(error, BrokerError) else None for user, error in results.items()}


def test_invalid_changes_are_refused_for_their_user_alone() -> None:
    few = ScramRecord(b"salt", 4095, b"", b"")
    many = ScramRecord(b"salt", 16_385, b"", b"")
    assert outcome(
        CredentialChange("good", SHA_256, GOOD),
        CredentialChange("good", SHA_512, GOOD),
        CredentialChange("few", SHA_256, few),
        CredentialChange("many", SHA_256, many),
        CredentialChange("absent", SHA_256),
        CredentialChange("", SHA_256, GOOD),
        CredentialChange("control\n", SHA_256, GOOD),
        CredentialChange("mechanism", None, GOOD),
        CredentialChange("twice", SHA_256, GOOD),
        CredentialChange("twice", SHA_256),
    ) == {
        "good": None,
        "few": ErrorCode.unacceptable_credential,
        "many": ErrorCode.unacceptable_credential,
        "absent": ErrorCode.resource_not_found,
        "": ErrorCode.unacceptable_credential,
        "control\n": ErrorCode.unacceptable_credential,
        "mechanism": ErrorCode.unsupported_sasl_mechanism,
        "twice": ErrorCode.duplicate_resource,
    }
