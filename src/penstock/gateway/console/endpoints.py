"""Endpoints of the console: its page, its files and its settings.

The page runs only code from the files of the package, and connects only to this gateway. Its content security policy
enforces both; inline code is not allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from starlette.responses import Response

from penstock.config import CONSOLE_HIDE_VALUES, BrokerConfig
from penstock.gateway.console.assets import Asset, Assets
from penstock.gateway.http.endpoint import SYSTEM, Call, DeclaredResponse, Endpoint, Parameter, header, path
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, STRING, an_array, an_object

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
_PROTECTION = {
    "content-security-policy": CONTENT_POLICY,
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_NAME = {"type": "string", "minLength": 1, "maxLength": 100}
_ENCODING = header("Accept-Encoding", {"type": "string", "maxLength": 1_000}, "gzip compresses the response.")
_SETTINGS = an_object({"version": STRING, "hidden": an_array(STRING), "login": BOOLEAN})
_FILE = {200: DeclaredResponse("The file.", STRING, "text/javascript")}


class ConsoleHandlers:
    def __init__(self, config: BrokerConfig) -> None:
        self._assets = Assets()
        hidden = config[CONSOLE_HIDE_VALUES]
        self._hidden: list[str] = [] if hidden is None else list(hidden)

    async def show_page(self, call: Call) -> Response:
        return _respond(self._assets.page, call.parameters, {"cache-control": "no-store", **_PROTECTION})

    async def show_file(self, call: Call) -> Response:
        asked = call.parameters
        folder = f"{asked['folder']}/" if "folder" in asked else ""
        asset = self._assets.get(asked["digest"], folder + asked["file"])
        if asset is None:
            raise Problem(404, "there is no such file; reload the console", error="NOT_FOUND")
        return _respond(asset, asked, {"cache-control": _FOR_EVER, **_PROTECTION})

    async def show_settings(self, call: Call) -> Response:
        login = call.context.users is not None
        return json_response({"version": version("penstock"), "hidden": self._hidden, "login": login})


def _respond(asset: Asset, asked: Mapping[str, str], headers: Mapping[str, str]) -> Response:
    given = {"content-type": asset.content_type, "vary": "accept-encoding", **headers}
    if "gzip" in asked.get("Accept-Encoding", "").lower():
        return Response(asset.compressed, headers={**given, "content-encoding": "gzip"})
    return Response(asset.content, headers=given)


def console_endpoints(config: BrokerConfig) -> Sequence[Endpoint]:
    handlers = ConsoleHandlers(config)
    folder, file = path("folder", _NAME, "The folder."), path("file", _NAME, "The name of the file.")
    digest: Parameter = path("digest", _NAME, "The version of the files.")
    page = {200: DeclaredResponse("HTML.", STRING, "text/html")}
    below = "/console/assets/{digest}"
    return (
        Endpoint(
            "GET", "/console", "console", SYSTEM, "The web console.", handlers.show_page, page, (_ENCODING,)
        ),
        Endpoint(
            "GET",
            "/console/settings",
            "consoleSettings",
            SYSTEM,
            "The version, the patterns of topics whose values the console hides, and whether clients log in.",
            handlers.show_settings,
            {200: DeclaredResponse("The settings.", _SETTINGS)},
        ),
        Endpoint(
            "GET",
            f"{below}/{{file}}",
            "consoleFile",
            SYSTEM,
            "A file of the console.",
            handlers.show_file,
            _FILE,
            (digest, file, _ENCODING),
        ),
        Endpoint(
            "GET",
            f"{below}/{{folder}}/{{file}}",
            "consoleFolderFile",
            SYSTEM,
            "A file of a folder of the console.",
            handlers.show_file,
            _FILE,
            (digest, folder, file, _ENCODING),
        ),
    )
