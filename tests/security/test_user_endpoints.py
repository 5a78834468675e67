"""`/v1/users`: users and their access tokens over HTTP."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from test_http_users import HttpsClient, basic, secure

from support.certificates import TestAuthority
from support.secure_brokers import add_user, in_thread
from support.whole_brokers import Brokers, run


class Asker:
    def __init__(self, port: int, authority: TestAuthority) -> None:
        self._client = HttpsClient(port, authority)

    async def ask(self, method: str, path: str, body: Any = None, by: str | None = None) -> tuple[int, Any]:
        credentials = basic("root", "secret") if by is None else by
        content = None if body is None else json.dumps(body)
        status, _, answer = await in_thread(partial(self._client.ask, method, path, credentials, content))
        return status, json.loads(answer) if answer else None

    async def status(self, method: str, path: str, body: Any = None, by: str | None = None) -> int:
        return (await self.ask(method, path, body, by))[0]


def test_users_and_tokens_over_http(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "root", "secret")
        asker = Asker(brokers.running[1].http_port, authority)
        ask, status = asker.ask, asker.status
        both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
        shown = {"name": "alice", "disabled": False, "mechanisms": both, "tokens": []}

        new = {"name": "alice", "password": "first"}
        assert await ask("POST", "/v1/users", new) == (201, shown)
        assert await status("POST", "/v1/users", new) == 409
        assert await ask("GET", "/v1/users/alice") == (200, shown)
        assert [each["name"] for each in (await ask("GET", "/v1/users"))[1]["users"]] == ["alice", "root"]
        assert await status("GET", "/v1/session", by=basic("alice", "first")) == 200

        assert (await ask("PATCH", "/v1/users/alice", {"password": "second"}))[0] == 200
        assert await status("GET", "/v1/session", by=basic("alice", "first")) == 401
        assert await status("GET", "/v1/session", by=basic("alice", "second")) == 200

        code, made = await ask("POST", "/v1/users/alice/tokens", {"label": "build", "lifetime_ms": 60_000})
        assert (code, made["user"]) == (201, "alice")
        bearer = f"Bearer {made['token']}"
        assert await status("GET", "/v1/session", by=bearer) == 200
        [token] = (await ask("GET", "/v1/users/alice"))[1]["tokens"]
        assert (token["id"], token["label"]) == (made["id"], "build")
        assert made["token"] not in json.dumps(token)
        assert await status("DELETE", f"/v1/users/alice/tokens/{made['id']}") == 204
        assert await status("DELETE", f"/v1/users/alice/tokens/{made['id']}") == 404
        assert await status("GET", "/v1/session", by=bearer) == 401

        assert (await ask("PATCH", "/v1/users/alice", {"disabled": True}))[1]["disabled"] is True
        assert await status("GET", "/v1/session", by=basic("alice", "second")) == 401
        assert (await ask("PATCH", "/v1/users/alice", {"disabled": False}))[1]["disabled"] is False
        assert await status("GET", "/v1/session", by=basic("alice", "second")) == 200
        assert await status("DELETE", "/v1/users/alice") == 204
        assert await status("GET", "/v1/users/alice") == 404

    settings = {**secure(authority), "authorization_mode": "enforce", "super_users": "User:root"}
    run(tmp_path, scenario, **settings)


def test_wrong_users_are_refused_and_nothing_is_made(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "root", "secret")
        asker = Asker(brokers.running[1].http_port, authority)
        for body in (
            {"name": "bob"},
            {"name": "bob", "password": ""},
            {"name": "", "password": "x"},
            {"name": "b\nob", "password": "x"},
            {"name": "b" * 1_000, "password": "x"},
            {"name": "bob", "password": "x", "super": True},
            {"name": "bob", "password": "x", "principal": "User:root"},
        ):
            assert await asker.status("POST", "/v1/users", body) == 400, body
        for method, path, content in (
            ("PATCH", "/v1/users/bob", {"password": "x"}),
            ("PATCH", "/v1/users/bob", {"disabled": True}),
            ("DELETE", "/v1/users/bob", None),
            ("POST", "/v1/users/bob/tokens", {}),
            ("DELETE", "/v1/users/bob/tokens/1", None),
        ):
            assert await asker.status(method, path, content) == 404, (method, path)
        assert list(harness.context.image.users) == ["root"]

    run(tmp_path, scenario, **secure(authority))
