"""Which argv a record may keep."""

from __future__ import annotations

from console.runner.executors.benchmark import public


def test_secrets_are_left_out() -> None:
    for argv, kept in (
        (["llama-server", "-m", "x.gguf"], ["llama-server", "-m", "x.gguf"]),
        (["s", "--api-key", "hunter2", "-c", "8192"], ["s", "--api-key", "*****", "-c", "8192"]),
        (["s", "--api-key=hunter2", "x"], ["s", "--api-key=*****", "x"]),
        (["s", "--hf-token", "hf_x", "--k"], ["s", "--hf-token", "*****", "--k"]),
        (["s", "-hft", "hf_x"], ["s", "-hft", "*****"]),
        (["s", "--max-tokens", "9", "--cache-type-k", "q8_0"],
         ["s", "--max-tokens", "9", "--cache-type-k", "q8_0"]),
        (["s", "a\x1b[2Jb"], ["s", "ab"]),
    ):  # fmt: skip
        assert public(argv) == kept
