"""Copy a topic exactly once until the process is killed.

copier_program.py BOOTSTRAP SOURCE SINK GROUP TRANSACTIONAL_ID
"""

from __future__ import annotations

import sys

from penstock import process


def main(bootstrap: str, source: str, sink: str, group: str, transactional_id: str) -> None:
    process(
        source,
        lambda message: message.value,
        sink,
        group=group,
        bootstrap=bootstrap,
        transactional_id=transactional_id,
        max_messages=50,
        transaction_timeout_s=15,
        consumer_config={"session.timeout.ms": 6_000},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
