"""`penstock cluster up --secure`: one authority, one certificate and one administrator for all brokers of a machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cli.cluster.zookeeper_process import ZooKeeperTls

DIRECTORY = "tls"
CERTIFICATE = "broker"
ZOOKEEPER = "zookeeper"
DIGEST_FILE = "zookeeper.digest"
ENABLE = "zookeeper.ssl.client.enable"
KEYSTORE = "zookeeper.ssl.keystore.location"
TRUSTSTORE = "zookeeper.ssl.truststore.location"


def secure_cluster(directory: Path, base_port: int, bootstrap: str) -> dict[str, str]:
    """Prepare a cluster and return the settings of its brokers. Prints the password of a new administrator once.

    Only the brokers can read and change the nodes in ZooKeeper.
    """
    from penstock.cli.secure_setup import announce, certificate_for, prepare
    from penstock.cli.tls import write_secret

    setup = prepare(directory / DIRECTORY)
    digest = setup.directory / DIGEST_FILE
    if not digest.exists():
        write_secret(digest, f"penstock:{secrets.token_urlsafe(18)}\n".encode())
    name = f"local-{base_port}"
    setup.save_context(name, bootstrap)
    announce(setup, name, has_http=True)
    enter_cluster(directory)
    return {
        **setup.settings(certificate_for(setup, CERTIFICATE, ())),
        "zookeeper.digest": f"${{file:{digest}}}",
    }


def secure_zookeeper(directory: Path) -> dict[str, str]:
    """Issue the certificate of the cluster's own ZooKeeper; return the settings with which brokers connect to it."""
    from penstock.cli.secure_setup import certificate_for, prepare

    setup = prepare(directory / DIRECTORY)
    certificate_for(setup, ZOOKEEPER, ())
    return {
        ENABLE: "true",
        KEYSTORE: str(certificate_for(setup, CERTIFICATE, ())),
        TRUSTSTORE: str(setup.ca),
    }


def zookeeper_tls(settings: Mapping[str, str]) -> ZooKeeperTls | None:
    """Return the files for the cluster's own ZooKeeper from the settings of its brokers; None without TLS."""
    from penstock.cli.cluster.zookeeper_process import ZooKeeperTls

    if settings.get(ENABLE) != "true":
        return None
    client, authority = settings[KEYSTORE], settings[TRUSTSTORE]
    return ZooKeeperTls(str(Path(authority).with_name(f"{ZOOKEEPER}.pem")), authority, client)


def enter_cluster(directory: Path) -> None:
    """Set environment variables with which this process logs in to the cluster as its administrator."""
    from penstock.cli.secure_setup import ADMIN, PASSWORD_FILE
    from penstock.cli.tls import CA_FILE

    tls = (directory / DIRECTORY).absolute()
    os.environ |= {
        "PENSTOCK_CA": str(tls / CA_FILE),
        "PENSTOCK_USER": ADMIN,
        "PENSTOCK_PASSWORD_FILE": str(tls / PASSWORD_FILE),
    }
