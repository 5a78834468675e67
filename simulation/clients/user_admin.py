"""A simulated administrator of users: changes their credentials, disables them, creates and revokes a token, and reads
them at every broker.

The aspects of a user are parts of one node of the store. A change of one aspect through a broker with an old image
must not undo the change of another one.
"""

from __future__ import annotations

from asyncio import gather

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.inspection import ask_broker
from penstock.security.scram import MIN_ITERATIONS, ScramMechanism
from simulation.clients.client import SimulatedClient, check_error
from simulation.models.history import InvariantViolated
from simulation.models.user_model import Aspect, UserModel, Version, check_equal
from simulation.scenarios.stage import Stage

USERS = 3
_MECHANISMS = {Aspect.SHA_256: ScramMechanism.SHA_256, Aspect.SHA_512: ScramMechanism.SHA_512}
_UNCLEAR = (ErrorCode.request_timed_out, ErrorCode.not_controller, ErrorCode.kafka_storage_error)
_Shown = dict[tuple[str, Aspect], Version]


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
        # The credential SHA-512 comes first and stays, so that the user exists.
        count = self._random.choice((1, 2)) if user.exists else 1
        aspects = self._random.sample(list(Aspect), count) if user.exists else [Aspect.SHA_512]
        try:
            # Two changes at a time, through two brokers: one of them is decided from an image without the other.
            outcomes = await gather(
                *(self._draw_change(user, aspect) for aspect in aspects), return_exceptions=True
            )
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
        finally:
            if not user.is_certain:
                self._users.remove(user)
                self._retired.append(user)

    async def _draw_change(self, user: UserModel, aspect: Aspect) -> None:
        version = next(self._versions, None)
        if version is None:
            return
        if aspect is not Aspect.SHA_512 and user.known(aspect) is not None and self._random.random() < 0.6:
            version = None
        await self._change(user, aspect, version)

    async def _change(self, user: UserModel, aspect: Aspect, version: Version) -> None:
        broker = await self._routing.any_broker()
        connection = broker.connections
        present = user.known(aspect)
        user.begin(aspect, version)
        code = await self._send(broker, user, aspect, present, version)
        self._stage.note(self.name, "change", user.name, aspect, version, code.name)
        if code in _UNCLEAR:
            return  # the change may be made or not
        if code:
            user.refuse(aspect, version)
            check_error(code)
        user.acknowledge(aspect, version)
        shown = await _describe(broker)
        if broker.connections == connection:
            # The broker that has acknowledged a change shows it.
            user.check(aspect, shown.get((user.name, aspect)), broker.name)

    async def _send(
        self, broker: SimulatedClient, user: UserModel, aspect: Aspect, present: Version, version: Version
    ) -> ErrorCode:
        if mechanism := _MECHANISMS.get(aspect):
            return await _alter_credential(broker, user.name, mechanism, version)
        arguments: dict[str, int | str | list[str]] = {"user": user.name}
        if aspect is Aspect.DISABLED:
            question = "disable_user"
            arguments["disabled"] = int(version is not None)
        elif version is None:
            question = "revoke_token"
            arguments["id"] = f"{present}"
        elif present is not None:
            return await self._replace_token(broker, user, present, version)
        else:
            question = "add_token"
            arguments |= _token(version)
        return await _ask(broker, question, arguments)

    async def _replace_token(
        self, broker: SimulatedClient, user: UserModel, present: int, version: int
    ) -> ErrorCode:
        """Revoke the token and create another one; a failure between the two leaves no token."""
        user.begin(Aspect.TOKEN, None)
        code = await _ask(broker, "revoke_token", {"user": user.name, "id": f"{present}"})
        return code or await _ask(broker, "add_token", {"user": user.name, **_token(version)})

    async def audit(self) -> None:
        """Check in peace that all brokers show the same users, as they were acknowledged."""
        found = []
        for member in self._stage.members:
            shown = await _describe(await self._routing.broker(member.node_id))
            found.append((member.host.name, shown))
            for user in (*self._users, *self._retired):
                for aspect in Aspect:
                    user.check(aspect, shown.get((user.name, aspect)), member.host.name)
                _check_login(user, member.account_iterations(user.name), shown)
        check_equal(found)


def _token(version: int) -> dict[str, int | str | list[str]]:
    return {"id": f"{version}", "label": "", "digest": version.to_bytes(32, "big").hex(), "lifetime_ms": 0}


async def _alter_credential(
    broker: SimulatedClient, name: str, mechanism: ScramMechanism, version: Version
) -> ErrorCode:
    credential = {"name": name, "mechanism": mechanism.code}
    fields: dict[str, object] = {"deletions": [credential], "upsertions": ()}
    if version is not None:
        salt = version.to_bytes(4, "big") * 4
        new = {**credential, "iterations": version, "salt": salt, "salted_password": salt * 2}
        fields = {"deletions": (), "upsertions": [new]}
    response = await broker.ask("AlterUserScramCredentials", (0,), fields)
    return ErrorCode(response.results[0].error_code)


async def _ask(
    broker: SimulatedClient, question: str, arguments: dict[str, int | str | list[str]]
) -> ErrorCode:
    try:
        await broker.inspect(lambda connection: ask_broker(connection, question, arguments))
    except BrokerError as error:
        return error.code
    return ErrorCode.none


def _check_login(user: UserModel, iterations: Version, shown: _Shown) -> None:
    """Logins use the credentials that DescribeUserScramCredentials shows; disabled users cannot log in."""
    is_disabled = shown.get((user.name, Aspect.DISABLED)) is not None
    expected = None if is_disabled else shown.get((user.name, Aspect.SHA_256))
    if iterations != expected:
        raise InvariantViolated("user", f"{user.name} logs in with {iterations}, but has {expected}")


async def _describe(broker: SimulatedClient) -> _Shown:
    response = await broker.ask("DescribeUserScramCredentials", (0,), {"users": None})
    check_error(response.error_code)
    aspects = {mechanism.code: aspect for aspect, mechanism in _MECHANISMS.items()}
    shown: _Shown = {
        (result.user, aspects[info.mechanism]): info.iterations
        for result in response.results
        for info in result.credential_infos
    }
    more = await broker.inspect(lambda connection: ask_broker(connection, "users", {}))
    for user in more["users"]:
        if user["disabled"]:
            shown[user["name"], Aspect.DISABLED] = 1
        for token in user["tokens"]:
            shown[user["name"], Aspect.TOKEN] = int(token["id"])
    return shown
