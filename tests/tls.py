"""A certificate for servers of the tests that speak TLS."""

import shutil
import subprocess
from pathlib import Path

import pytest


def made_certificate(place: Path) -> Path:
    """A key and its own certificate for 127.0.0.1, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key, cert, both = place / "key.pem", place / "cert.pem", place / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    both.write_text(key.read_text() + cert.read_text())
    return both
