"""Contexts: named clusters with their address, authority and user, for `--context NAME` and `penstock context`.

Contexts are stored in `contexts.json` in the user's configuration directory. The current context sets the client
variables that the environment does not set; a context given with `--context` overrides the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.cli.failures import ExitCode, Failure

OPTION = "--context"
VARIABLE = "PENSTOCK_CONTEXT"
_FILE = "contexts.json"


@dataclass(frozen=True, slots=True)
class Context:
    bootstrap: str
    ca: str | None = None
    user: str | None = None
    password_file: str | None = None
    certificate: str | None = None

    @property
    def variables(self) -> dict[str, str]:
        values = {
            "PENSTOCK_BOOTSTRAP": self.bootstrap,
            "PENSTOCK_CA": self.ca,
            "PENSTOCK_USER": self.user,
            "PENSTOCK_PASSWORD_FILE": self.password_file,
            "PENSTOCK_CERTIFICATE": self.certificate,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(slots=True)
class Contexts:
    contexts: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Context:
        if name not in self.contexts:
            raise Failure(
                f"there is no context {name!r}",
                "`penstock context list` shows the contexts, `penstock context add` adds one.",
                code=ExitCode.USAGE,
            )
        return self.contexts[name]


def contexts_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "penstock" / _FILE


def load_contexts() -> Contexts:
    file = contexts_file()
    try:
        stored = json.loads(file.read_text())
        contexts = {name: Context(**fields) for name, fields in stored["contexts"].items()}
        return Contexts(contexts, stored["current"])
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return Contexts()  # a service may have no home directory, or another user's
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(
            f"cannot read {file}: {type(error).__name__}",
            "Correct the file, or remove it.",
            code=ExitCode.USAGE,
        ) from None


def save_contexts(contexts: Contexts) -> None:
    file = contexts_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    stored = {
        "contexts": {name: asdict(context) for name, context in contexts.contexts.items()},
        "current": contexts.current,
    }
    new = file.with_suffix(".new")
    new.write_text(json.dumps(stored, indent=2) + "\n")
    new.replace(file)


def enter_context(arguments: Sequence[str]) -> list[str]:
    """Set the client variables of the selected context, and return the arguments without `--context NAME`.

    Without `--context`, the current context is used, unless the command line or the environment names a broker.
    """
    rest, name = _take_option(arguments)
    name = name or os.environ.get(VARIABLE)
    is_chosen = name is not None
    if not is_chosen:
        # --data-dir names a cluster on this machine, whose address is in the directory.
        if "PENSTOCK_BOOTSTRAP" in os.environ or any(_names_cluster(each) for each in rest):
            return rest
        name = load_contexts().current
    if name is not None:
        for variable, value in load_contexts().get(name).variables.items():
            if is_chosen:
                os.environ[variable] = value
            else:
                os.environ.setdefault(variable, value)
    return rest


def _names_cluster(argument: str) -> bool:
    return argument.partition("=")[0] in ("-b", "--bootstrap", "--data-dir")


def _take_option(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    rest, name = list(arguments), None
    for place, argument in enumerate(rest):
        if argument == OPTION:
            if place + 1 == len(rest):
                raise Failure("--context needs a name", "Give --context NAME.", code=ExitCode.USAGE)
            name = rest[place + 1]
            del rest[place : place + 2]
            break
        if argument.startswith(f"{OPTION}="):
            name = argument.partition("=")[2]
            del rest[place]
            break
    return rest, name
