"""A server that loads for ever: 503 to everything."""

from __future__ import annotations

import os
import signal
from http.server import BaseHTTPRequestHandler, HTTPServer


class Loading(BaseHTTPRequestHandler):
    """As llama-server answers while its model loads."""

    def do_GET(self) -> None:
        data = b'{"error":{"code":503,"message":"Loading model"}}'
        self.send_response(503)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET


def serve(host: str, port: int) -> None:
    """Until SIGTERM or SIGINT."""
    print("stand-in: loading, and never done", flush=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    HTTPServer((host, port), Loading).serve_forever()
