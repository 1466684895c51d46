"""What is said of a site that is refused: each with its place."""

from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from tests.site.test_load import BASELINE, GPUS, MACHINE, problems

SERVICE = "services:\n  c:\n    container: {}\n    url: 'http://a:1'\n"
REFUSED = [
    "", "baseline: {url: 'http://a:1'}\n", BASELINE.replace("{", "{process: {argv: [x]}, "),
    BASELINE.replace("http:", "https:"),
    *(
        BASELINE.replace("8000'", f"8000', {more}")
        for more in (
            "ready: {timeout: 15}", "ready: {http: health}", "grace: 10", "reference: {tok_s: 0}",
            "reference: {tok_s: 1e999}", "reference: {tok_s: 9, tolerance: 1}",
        )
    ),
    *(
        f"{BASELINE}{more}\n"
        for more in (
            "servces: {}", "name: other", "engine: {host: 'tcp://1.2.3.4:2375'}",
            "gpus: [{name: x}]", "protected: web", "services: {baseline: {}}",
            SERVICE.format("{image: i, name: base}"),
            "protected: [omni-c]\n" + SERVICE.format("{image: i}"), "services: {../x: {}}",
            "services: {c: {url: 'http://a:1'}}",
            "services: {c: {url: 'http://a:1', container: {image: i, ports: ['8001']}}}",
            "services: {c: {url: 'http://a:1', container: {image: i, privileged: true}}}",
        )
    ),
    "baseline: {process: {argv: [llama-server, -m, ~/m.gguf]}, url: 'http://127.0.0.1:8000'}\n",
    "baseline: {url: 'ftp://x', grace: 5}\nnope: 1\nprotected: x\nprotected: y\n",
]  # fmt: skip
GUARDS = [
    "{metric: host.ram_available, below: 377GiB}", "{metric: host.ram_available, below: 1}",
    "{metric: host.swap_free, below: 300GiB}", "{metric: host.swap_used, above: 207GiB}",
    "{metric: gpu.memory_used, above: 128GiB, of: sum}",
    "{metric: gpu.memory_used, above: 96GiB, of: max}",
    "{metric: gpu.memory_used, above: 40GiB, of: GPU-b}", "{log: nobody, matches: x}",
]  # fmt: skip
NOTIFY = [
    "{mail: root}", "[{}]", "[{webhok: 'https://h/x'}]", "[{webhook: 'ftp://x'}]", "[{webhook: 7}]",
    "[{webhook: {evn: X}}]", "[{webhook: {env: X, file: y}}]", "[{ntfy: 'https://ntfy.sh'}]",
    "[{mail: 'a b'}]", "[{mail: root, webhook: 'http://a'}]", "[{mail: root, headers: {a: b}}]",
    "[{mail: root, on: [guardkill]}]", "[{mail: root, on: [x]}]", "[{mail: root, on: []}]",
    "[{command: ls}]", "[{command: []}]", "[{command: [bin/x]}]",
    "[{webhook: 'http://a', headers: {'a b': c}}]",
    '[{webhook: "http://a", headers: {a: "b\\nc"}}]',
]  # fmt: skip


def test_sites(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "site.yaml"
    said = [line for body in REFUSED for line in (ascii(body), *problems(path, body))]
    said += ["no site at all", *problems(path, "", head="")]
    assert "\n".join(said) == snapshot


def test_guards(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path, site = tmp_path / "site.yaml", BASELINE + MACHINE + GPUS + "guards:\n- "
    said = [line for guard in GUARDS for line in (guard, *problems(path, f"{site}{guard}\n"))]
    assert "\n".join(said) == snapshot


def test_who_is_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "site.yaml"
    said = [line for one in NOTIFY for line in (one, *problems(path, f"{BASELINE}notify: {one}\n"))]
    assert "\n".join(said) == snapshot
