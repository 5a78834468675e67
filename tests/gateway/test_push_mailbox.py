"""A user's mailbox as server-sent events: in order, each once for a client that resumes by id, none of other
users.
"""

from __future__ import annotations

from pathlib import Path

from push_stage import Stage, on_stage

from support.whole_brokers import Brokers

EVENTS = "/receive/events"


async def send(stage: Stage, to_user: str, *messages: str) -> list[str]:
    ids = []
    for message in messages:
        body = {"from_user": "ann", "to_user": to_user, "message": message}
        answer = await stage.http.post("/send", json=body)
        assert answer.status_code == 200, answer.text
        ids.append(answer.json()["message_id"])
    return ids


def test_mailbox_stream_has_only_messages_of_its_user(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        [first] = await send(stage, "bob", "before")
        async with stage.events(EVENTS, user_id="bob") as events:
            message = await events.next()
            assert (message["message_id"], events.last_id) == (first, first)
            assert message["message"] == "before"
            assert (message["from_user"], message["to_user"]) == ("ann", "bob")
            for number in range(20):
                await send(stage, "eve", "not for bob")
                [sent] = await send(stage, "bob", str(number))
                message = await events.next()
                assert (message["message_id"], message["message"]) == (sent, str(number))

    on_stage(tmp_path, scenario)


def test_mailbox_stream_resumes_after_last_message_seen(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await send(stage, "bob", *map(str, range(30)))
        seen: list[str] = []
        last_id = ""
        while len(seen) < 30:
            async with stage.events(EVENTS, last_id, user_id="bob") as events:
                seen += [(await events.next())["message"] for _ in range(10)]
                last_id = events.last_id
        assert seen == [str(number) for number in range(30)]
        async with stage.events(EVENTS, user_id="bob", last_message_id=last_id) as events:
            await send(stage, "bob", "next")
            assert (await events.next())["message"] == "next"

    on_stage(tmp_path, scenario)


def test_message_id_of_another_user_is_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        [foreign] = await send(stage, "eve", "x")
        for last in (foreign, "nonsense"):
            refused = await stage.http.get(EVENTS, params={"user_id": "bob", "last_message_id": last})
            assert refused.status_code == 400
        assert (await stage.http.get(EVENTS)).status_code == 400

    on_stage(tmp_path, scenario)
