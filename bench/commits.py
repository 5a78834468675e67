"""Source tree of another commit, run by the same interpreter with the same packages: what a change costs plain topics.

The tree is a git worktree below build/, and its C extensions are compiled like those of this tree. Both brokers are
measured in the same rounds, so the ratio shows the change and little of the machine.
"""

from __future__ import annotations

import shlex
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

from bench.comparison import Bar, Row
from bench.kafka_install import BUILD, ROOT
from bench.servers import OtherCommit, Penstock

NEAR = 0.02
"""Part by which rate and processor time may differ."""


def other_commit(revision: str) -> type[Penstock]:
    """The broker of a commit; its worktree stays for the next run."""
    commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}")
    place = BUILD / "commits" / commit[:12]
    if not place.exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", str(place), commit)
    for source in place.glob("src/penstock/*/_*.c"):
        _compile(source)
    return type("Other", (OtherCommit,), {"source": place / "src"})


def near(row: Row) -> Row:
    """A row with the target that this commit is no worse than the other one."""
    if row.label == "rate":
        return replace(row, bar=Bar("ratio", "at least", 1 - NEAR))
    return replace(row, bar=Bar("ratio", "at most", 1 + NEAR) if row.label == "server CPU" else None)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _compile(source: Path) -> None:
    target = source.with_name(source.stem + str(sysconfig.get_config_var("EXT_SUFFIX")))
    if not target.exists():
        compiler = shlex.split(
            f"{sysconfig.get_config_var('LDSHARED')} {sysconfig.get_config_var('CFLAGS')} -fPIC"
        )
        include = sysconfig.get_path("include")
        subprocess.run([*compiler, f"-I{include}", str(source), "-o", str(target)], check=True)
