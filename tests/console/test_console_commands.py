"""The `penstock` commands that the console shows for its actions: commands and options that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import penstock.gateway.console
from penstock.cli.commands import COMMANDS, make_app

STATIC = Path(penstock.gateway.console.__file__).parent / "static"
PAGES = [
    page for page in sorted(STATIC.glob("pages/*.js")) if re.search(r"penstock: |Words\(", page.read_text())
]
_WORDS = re.compile(r'(?:penstock: |return |target, |\? )\[("[a-z-]+"(?:, "[a-z-]+")*)')
_OPTION = re.compile(r'"(--[a-z-]+)"')


def commands_in(text: str) -> Iterator[Any]:
    """Yield the commands whose words begin a list of a page; an unknown one fails."""
    for listed in _WORDS.findall(text):
        words = re.findall(r"[a-z-]+", listed)
        if words[0] not in COMMANDS:
            continue
        command: Any = typer.main.get_command(make_app([words[0]]))
        for word in words:
            if not hasattr(command, "commands"):
                break
            assert word in command.commands, f"there is no command {' '.join(words)}"
            command = command.commands[word]
        yield from getattr(command, "commands", {"": command}).values()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_options_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    known = {
        option
        for command in commands_in(text)
        for each in command.params
        for option in (*each.opts, *each.secondary_opts)
    }
    assert set(_OPTION.findall(text)) <= known | {"--"}
