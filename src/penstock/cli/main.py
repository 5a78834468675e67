"""Where the `penstock` process begins."""

from __future__ import annotations

import sys


def main() -> None:
    # kio loads hypothesis where it is installed, which costs a start a fifth of a second and gives nothing.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from penstock.cli.commands import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
