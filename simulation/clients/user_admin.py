"""A simulated administrator of users: creates and deletes SCRAM credentials, and reads them at every broker."""

from __future__ import annotations

from penstock.errors import ErrorCode
from penstock.security.scram import MIN_ITERATIONS, ScramMechanism
from simulation.clients.client import SimulatedClient, check_error
from simulation.models.history import InvariantViolated
from simulation.models.user_model import UserModel, Version, check_equal
from simulation.scenarios.stage import Stage

USERS = 3
_MECHANISM = ScramMechanism.SHA_256


class UserAdmin:
    name = "user-admin"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._versions = iter(range(MIN_ITERATIONS, 4 * MIN_ITERATIONS))
        self._users: list[UserModel] = []
        self._retired: list[UserModel] = []

    async def step(self) -> None:
        while len(self._users) < USERS:
            self._users.append(UserModel(f"user-{len(self._users) + len(self._retired)}"))
        user = self._random.choice(self._users)
        try:
            if user.possible == {None} or self._random.random() < 0.7:
                await self._set(user)
            else:
                await self._delete(user)
        finally:
            if not user.is_certain:
                self._users.remove(user)
                self._retired.append(user)

    async def _set(self, user: UserModel) -> None:
        version = next(self._versions, None)
        if version is None:
            return
        salt = version.to_bytes(4, "big") * 4
        changed = {
            "name": user.name,
            "mechanism": _MECHANISM.code,
            "iterations": version,
            "salt": salt,
            "salted_password": salt * 2,
        }
        await self._change(user, version, {"deletions": (), "upsertions": [changed]})

    async def _delete(self, user: UserModel) -> None:
        deleted = {"name": user.name, "mechanism": _MECHANISM.code}
        await self._change(user, None, {"deletions": [deleted], "upsertions": ()})

    async def _change(self, user: UserModel, version: Version, fields: dict[str, object]) -> None:
        broker = await self._routing.any_broker()
        connection = broker.connections
        user.begin(version)
        response = await broker.ask("AlterUserScramCredentials", (0,), fields)
        code = response.results[0].error_code
        self._stage.note(self.name, "change", user.name, version, ErrorCode(code).name)
        if code in (ErrorCode.request_timed_out, ErrorCode.not_controller, ErrorCode.kafka_storage_error):
            return  # the change may be made or not
        if code:
            user.refuse(version)
            check_error(code)
        user.acknowledge(version)
        shown = await _describe(broker)
        if broker.connections == connection:
            # The broker that has acknowledged a change shows it.
            user.check(shown.get(user.name), broker.name)

    async def audit(self) -> None:
        """Check in peace that all brokers show the same users, as they were acknowledged."""
        found = []
        for member in self._stage.members:
            shown = await _describe(await self._routing.broker(member.node_id))
            found.append((member.host.name, shown))
            for user in (*self._users, *self._retired):
                user.check(shown.get(user.name), member.host.name)
                _check_login(user, member.account_iterations(user.name), shown.get(user.name))
        check_equal(found)


def _check_login(user: UserModel, iterations: Version, shown: Version) -> None:
    """Logins use the credentials that DescribeUserScramCredentials shows."""
    if iterations != shown:
        raise InvariantViolated("user", f"{user.name} logs in with {iterations}, but has {shown}")


async def _describe(broker: SimulatedClient) -> dict[str, Version]:
    response = await broker.ask("DescribeUserScramCredentials", (0,), {"users": None})
    check_error(response.error_code)
    return {result.user: result.credential_infos[0].iterations for result in response.results}
