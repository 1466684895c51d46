"""Secrets by their form, and those of letters alone, beside lines of healthy servers."""

import json
from pathlib import Path

import pytest

from console.common import redact

R = "aB3dE5gH7jK9mN1pQ3sT5vW7"
FORMS = [
    f"https://hooks.slack.com/workflows/T0/A0/1/{R}", f"https://ntfy.sh/{R}", f"hvs.{R}",
    f"client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVkt{R}", f"sk_test_{R}", f"shpat_{R}",
    f".dockerconfigjson: eyJhdXRocyI6eyJ4Ijp7{R}", f"glsa_{R}_1a2b3c4d", f"lin_api_{R}",
    f"xapp-1-A0-1-{R}", f"ATATT3xFfGF0{R}", f"tgp_v1_{R}", f"jina_{R}", f"syt_dXNlcg_{R}_0ab",
]  # fmt: skip
LETTERS = [
    "API key abcdefghijklmnop", "password is swordfish", "Your password: swordfish",
    "the password is swordfish", "your API key is abcdefghijklmnop",
    "the admin password is correcthorse", "using master key abcdefghijklmnop",
]  # fmt: skip
STAYS = [
    "key frames", "primary key id", "no API key set", "key value heads", "the API key is missing",
    "the password is incorrect", "password is required", "the API key is deprecated",
    "API key authentication enabled", "API key misconfiguration", "password: required",
    "https://ntfy.sh/docs", "certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
    "the password is case-sensitive", "the password is stored in the keyring", "dapi",
]  # fmt: skip


@pytest.mark.parametrize("line", [*FORMS, *LETTERS])
def test_it_is_hidden(line: str) -> None:
    shown = redact.text(line)
    assert redact.HIDDEN in shown
    assert not [one for one in (R, "abcdefgh", "swordfish", "correcthorse") if one in shown]


@pytest.mark.parametrize("line", STAYS)
def test_ordinary_words_stay(line: str) -> None:
    assert redact.text(line) == line


def test_the_lines_of_healthy_servers_stay() -> None:
    healthy = Path(__file__).parents[1] / "logs/data/healthy.jsonl"
    lines = [json.loads(row)["line"] for row in healthy.read_text().splitlines()]
    assert len(lines) >= 150
    assert [line for line in lines if redact.text(line) != line] == []


@pytest.mark.parametrize("line", [
    f"OTEL_EXPORTER_OTLP_HEADERS=x-honeycomb-team={R}", f"serve --otlp-headers=x-team={R} -v",
    f"OTEL_EXPORTER_OTLP_TRACES_HEADERS='x-team={R}'", f"serve --otlp-headers x-team={R} -v",
    f"Environment=OTEL_EXPORTER_OTLP_METRICS_HEADERS=x-h={R}",
    f'{{"OTEL_EXPORTER_OTLP_HEADERS":"x-honeycomb-team={R},env=prod"}}',
])  # fmt: skip
def test_a_header_of_an_exporter_is_hidden_whatever_its_name(line: str) -> None:
    assert R not in redact.text(line)
    assert R not in " ".join(redact.argv(line.split()))


@pytest.mark.parametrize("line", [
    "OTLP exporter sends no headers", "--otlp-traces-endpoint http://localhost:4317",
    "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317",
])  # fmt: skip
def test_an_exporter_s_address_is_shown(line: str) -> None:
    assert redact.text(line) == line
