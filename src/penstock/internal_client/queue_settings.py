"""Settings of queues in JSON documents, and their conversion to the group configs that hold them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from penstock.config.retry_backoff import parse_retry_backoff


class _Form(NamedTuple):
    setting: str
    """Name of the setting in `queues.SETTINGS`."""
    store: Callable[[Any], str]
    show: Callable[[str], Any]


def _seconds(text: str) -> float | int:
    milliseconds = int(text)
    return milliseconds / 1000 if milliseconds % 1000 else milliseconds // 1000


def _flag(value: bool) -> str:
    return "true" if value else "false"


_FORMS: Final[Mapping[str, _Form]] = {
    "lock_s": _Form("lock_ms", lambda value: str(max(1, round(value * 1000))), _seconds),
    "max_attempts": _Form("max_attempts", str, int),
    "back_off": _Form("back_off", str, str),
    "dead_letter": _Form("dead_letter", str, str),
    "order": _Form("order", str, str),
    "priorities": _Form("priorities", _flag, lambda text: text == "true"),
    "priority_share": _Form("priority_share", str, float),
    "max_length": _Form("max_length", str, int),
    "max_length_policy": _Form("max_length_policy", str, str),
}


def stored_settings(document: Mapping[str, Any]) -> dict[str, str | None]:
    """Values of the settings that a document has, by setting; None returns a setting to its default.

    Raises ValueError, with the name of the field, for an invalid back-off.
    """
    if document.get("back_off"):
        try:
            parse_retry_backoff(document["back_off"])
        except ValueError as error:
            raise ValueError(f"back_off: {error}") from None
    return {
        form.setting: None if document[name] is None else form.store(document[name])
        for name, form in _FORMS.items()
        if name in document
    }


def shown_settings(stored: Mapping[str, str]) -> dict[str, Any]:
    """Fields of a document, from setting values by the names of `queues.SETTINGS`."""
    return {name: form.show(stored[form.setting]) for name, form in _FORMS.items() if form.setting in stored}
