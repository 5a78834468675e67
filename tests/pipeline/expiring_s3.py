"""S3 server whose credentials expire: `expiring_s3.py PORT UPSTREAM_PORT FLAG` forwards requests to another server, and
refuses them while the file FLAG exists.
"""

from __future__ import annotations

import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, UPSTREAM_PORT, FLAG = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)


class Forwarding(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if FLAG.exists():
            self._answer(400, [("Content-Type", "application/xml")], EXPIRED)
            return
        upstream = http.client.HTTPConnection("127.0.0.1", UPSTREAM_PORT, timeout=60)
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        content = answer.read()
        kept = [each for each in answer.getheaders() if each[0].lower() not in _OWN]
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self._answer(answer.status, kept, content, length)
        upstream.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, length: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)

    def log_message(self, *_: object) -> None:
        """No log."""


_OWN = ("content-length", "connection", "transfer-encoding", "date", "server")

if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Forwarding).serve_forever()
