"""`penstock cluster up --secure`: one authority, one certificate and one administrator for all brokers of a machine."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

DIRECTORY = "tls"
CERTIFICATE = "broker"
DIGEST_FILE = "zookeeper.digest"


def secure_cluster(directory: Path, base_port: int, bootstrap: str) -> dict[str, str]:
    """Prepare a cluster and return the settings of its brokers. Prints the password of a new administrator once.

    The nodes in ZooKeeper can be read and changed by the brokers alone.
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


def enter_cluster(directory: Path) -> None:
    """Let the commands of this process log in to the cluster as its administrator."""
    from penstock.cli.secure_setup import ADMIN, PASSWORD_FILE
    from penstock.cli.tls import CA_FILE

    tls = (directory / DIRECTORY).absolute()
    os.environ |= {
        "PENSTOCK_CA": str(tls / CA_FILE),
        "PENSTOCK_USER": ADMIN,
        "PENSTOCK_PASSWORD_FILE": str(tls / PASSWORD_FILE),
    }
