"""Rights over HTTP: the rules of the cluster hold for endpoints, and `/v1/acls` and `/v1/quotas` change them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from test_http_users import HttpsClient, basic, secure

from support.certificates import TestAuthority
from support.secure_brokers import add_user, in_thread
from support.whole_brokers import Brokers, run


def test_rules_created_over_http_hold_for_http(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        for user in ("root", "alice"):
            await add_user(harness, user, "secret")
        client = HttpsClient(brokers.running[1].http_port, authority)

        async def ask(user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
            content = None if body is None else json.dumps(body)
            status, _, answer = await in_thread(
                partial(client.ask, method, path, basic(user, "secret"), content)
            )
            return status, json.loads(answer) if answer else None

        assert (await ask("root", "POST", "/v1/topics", {"name": "orders"}))[0] == 201
        status, problem = await ask("alice", "GET", "/v1/topics/orders")
        assert (status, problem["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
        status, problem = await ask("alice", "POST", "/v1/topics", {"name": "mine"})
        assert status == 403
        assert "penstock acl allow alice create topic:mine" in problem["detail"]
        assert (await ask("alice", "GET", "/v1/acls"))[0] == 403
        assert (await ask("alice", "PATCH", "/v1/quotas", {"entity": {"user": "alice"}, "values": {}}))[
            0
        ] == 403

        rule = {"principal": "User:alice", "operation": "READ", "resource_type": "TOPIC", "name": "orders"}
        assert (await ask("root", "POST", "/v1/acls", {"rules": [rule]}))[0] == 201
        assert (await ask("root", "POST", "/v1/acls", {"rules": [{**rule, "super": True}]}))[0] == 400
        status, answer = await ask("root", "GET", "/v1/acls?principal=User:alice")
        assert answer == {"rules": [{**rule, "pattern": "LITERAL", "host": "*", "permission": "ALLOW"}]}
        assert (await ask("alice", "GET", "/v1/topics/orders"))[0] == 200
        assert [each["name"] for each in (await ask("alice", "GET", "/v1/topics"))[1]["topics"]] == ["orders"]
        assert (await ask("alice", "DELETE", "/v1/topics/orders"))[0] == 403
        own = "/v1/rights?resource_type=TOPIC&name=orders"
        assert (await ask("alice", "GET", own))[1]["allowed"] == ["READ", "DESCRIBE"]
        assert "DELETE" in (await ask("root", "GET", own))[1]["allowed"]
        exported = (await ask("root", "GET", "/v1/definitions"))[1]
        assert exported["acls"] == [{**rule, "pattern": "LITERAL", "host": "*", "permission": "ALLOW"}]
        assert (await ask("alice", "GET", "/v1/definitions"))[0] == 403

        refused = (await ask("root", "GET", "/v1/acls/refusals"))[1]
        assert refused["mode"] == "enforce"
        assert ("User:alice", "DELETE", "orders") in {
            (each["principal"], each["operation"], each["name"]) for each in refused["refusals"]
        }
        assert (await ask("root", "DELETE", "/v1/acls"))[0] == 400
        assert len((await ask("root", "DELETE", "/v1/acls?principal=User:alice"))[1]["rules"]) == 1
        assert (await ask("alice", "GET", "/v1/topics/orders"))[0] == 404

        quota = {"entity": {"user": None}, "values": {"producer_byte_rate": 1000}}
        status, answer = await ask("root", "PATCH", "/v1/quotas", quota)
        assert (status, answer["quotas"]) == (200, [quota])
        assert (await ask("root", "GET", "/v1/quotas"))[1] == answer

    settings = {**secure(authority), "authorization_mode": "enforce", "super_users": "User:root"}
    run(tmp_path, scenario, **settings)
