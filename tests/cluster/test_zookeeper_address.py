"""Checks of ZooKeeper's connect string and user, without a connection."""

from __future__ import annotations

import pytest

from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.cluster.zookeeper_security import ZooKeeperSecurity
from penstock.errors import ConfigError
from penstock.threads import ThreadPools


@pytest.mark.parametrize("hosts", ["zk::", "zk:port", "zk:70000", "zk:2181/a//b"])
def test_invalid_connect_string_is_explained(hosts: str) -> None:
    with pytest.raises(ConfigError, match="write HOST:PORT"):
        ZooKeeperStore(hosts, ThreadPools())


@pytest.mark.parametrize("hosts", ["zk", "zk:2181", "one:2181,two:2182/a/b", "zk:2181/a/"])
def test_zookeeper_connect_strings_are_accepted(hosts: str) -> None:
    ZooKeeperStore(hosts, ThreadPools())


@pytest.mark.parametrize("digest", ["shop", "shop:", ":hidden"])
def test_a_user_without_a_password_is_refused_and_not_repeated(digest: str) -> None:
    with pytest.raises(ConfigError, match="write user:password") as refused:
        ZooKeeperStore("zk:2181", ThreadPools(), security=ZooKeeperSecurity(digest))
    assert digest not in str(refused.value)
