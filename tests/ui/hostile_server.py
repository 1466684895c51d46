"""A server whose every word is hostile: `hostile_server.py PORT FILE`, the text in FILE.

Health answers 503, anything else 500; the text is the reason, a header and the error's message.
"""

from __future__ import annotations

import json
import socketserver
import sys
from pathlib import Path


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        first = self.rfile.readline()
        length = 0
        while (line := self.rfile.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self.rfile.read(length)
        words = Path(sys.argv[2]).read_bytes()
        if b"/health" not in first:
            status, body = b"500 ", words
        else:
            status = b"503 "
            message = words.decode("utf-8", "replace")
            body = json.dumps({"error": {"message": message, "code": 503}}).encode()
        line = words.replace(b"\n", b" ").replace(b"\r", b" ")[:2000]
        self.wfile.write(
            b"HTTP/1.1 " + status + line + b"\r\nX-Model: " + line + b"\r\nContent-Length: "
            + str(len(body)).encode() + b"\r\n\r\n" + body
        )  # fmt: skip


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
