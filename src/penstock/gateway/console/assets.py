"""The files of the console, read once from the package, and served at paths that contain a digest of their content.

All files share one path prefix: the digest over all of them. So relative imports between modules work, and browsers may
cache a file forever, because another version has another path. Only names that exist in the package are served, so a
path cannot lead to any other file.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
}
_PAGE = "index.html"
_PLACEHOLDER = b"ASSETS"


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    compressed: bytes
    """The content, compressed with gzip."""
    content_type: str


class Assets:
    def __init__(self) -> None:
        contents = dict(_read(files("penstock.gateway.console") / "static", ""))
        digest = sha256()
        for name, content in sorted(contents.items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        self.digest = digest.hexdigest()[:16]
        page = contents.pop(_PAGE).replace(_PLACEHOLDER, f"/console/assets/{self.digest}".encode())
        self.page = _make(_PAGE, page)
        """The HTML page, which loads the other files."""
        self._assets = {name: _make(name, content) for name, content in contents.items()}

    def get(self, digest: str, name: str) -> Asset | None:
        """Return the file with this name; None if `digest` is of another version or there is no such file."""
        return self._assets.get(name) if digest == self.digest else None

    @property
    def names(self) -> list[str]:
        return sorted(self._assets)

    @property
    def compressed_bytes(self) -> int:
        """Total size of the page and all files when compressed, as they are sent."""
        return sum(len(asset.compressed) for asset in (self.page, *self._assets.values()))


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        elif _suffix(entry.name) in _TYPES:
            yield prefix + entry.name, entry.read_bytes()


def _make(name: str, content: bytes) -> Asset:
    return Asset(content, gzip.compress(content, 9, mtime=0), _TYPES[_suffix(name)])


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]
