"""For every rule the fault as small as it gets, and the same thing done right."""

from __future__ import annotations

from textwrap import dedent
from typing import NamedTuple

from console.checks.lint import files

D, S, C, P = "Dockerfile", "trial.sh", "stack.yaml", "book.yaml"


class Case(NamedTuple):
    """`wrong` has the fault at (line, column); `right` has none of this rule."""

    rule: str
    file: str
    severity: str
    place: tuple[int, int]
    wrong: str
    right: str


def book(steps: str) -> str:
    rows = "".join(f"      {line}\n" for line in dedent(steps).strip().splitlines())
    return f"schema: omni.playbook/v1\nphases:\n  - title: one\n    steps:\n{rows}"


def stack(service: str) -> str:
    rows = "".join(f"    {line}\n" for line in dedent(service).strip().splitlines())
    return f"services:\n  one:\n{rows}"


BASE = "FROM nvidia/cuda:12.8.0-devel-ubuntu22.04\n"
CLONE = "RUN git clone --recursive https://github.com/kvcache-ai/ktransformers.git\n"
KERNEL = "RUN cd ktransformers/kt-kernel && pip install .\n"
HWLOC = "RUN apt-get install -y pkg-config libhwloc-dev cmake\n"
ARCHS = 'ENV CPUINFER_CUDA_ARCHS="120"\n'
ARCHIVE = "RUN cd ktransformers/archive && pip install -e .\n"
THIRD = "RUN cp -r ktransformers/third_party ktransformers/archive/\n"
R1 = "/models/DeepSeek-R1-Q4_K_M-00001-of-00009.gguf"
SGLANG = "python -m sglang.launch_server --attention-backend triton --fp8-gemm-backend triton"
GPU = "deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}"
CURL = "healthcheck: {test: [CMD, curl, -f, 'http://127.0.0.1'], interval: 5s}"
FLAGS = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ"
GET = "huggingface-cli download org/model-GGUF"

CASES = [
    Case("ggml-cuda-no-vmm", S, "error", (2, 2),
         "cmake -B build \\\n -DGGML_CUDA_NO_VMM=ON\n", "cmake -DGGML_CUDA_NO_VMM=OFF\n"),
    Case("ggml-cuda-no-vmm", D, "error", (2, 16),
         'FROM x\nENV CMAKE_ARGS="-DA=1 -DGGML_CUDA_NO_VMM:BOOL=1"\n', "FROM x\nENV A=ON\n"),
    Case("cuda-build-inside-image", D, "warning", (2, 20),
         "FROM x\nRUN cmake -B build -DGGML_CUDA=ON\n", "FROM x\nRUN cmake -DGGML_CUDA=OFF\n"),
    Case("shallow-clone-with-submodules", D, "error", (2, 5),
         "FROM x\nRUN git clone --depth 1 --recurse-submodules --shallow-submodules URL\n",
         "FROM x\nRUN git clone --recursive URL\n"),
    Case("shallow-clone-with-submodules", S, "error", (1, 1),
         "git clone --depth=1 https://github.com/kvcache-ai/ktransformers.git\n",
         "git clone --depth 1 https://github.com/ggml-org/llama.cpp\n"),
    Case("shallow-clone-with-submodules", S, "warning", (1, 1),
         "git clone --depth 1 --recursive URL\n", "git clone --recursive URL\n"),
    Case("build-time-gpu-validation", D, "error", (2, 5),
         "FROM x\nRUN python3 -c \"import torch; assert 'sm_120' in torch.cuda.get_arch_list()\"\n",
         'FROM x\nCMD ["python3", "-c", "import torch; torch.cuda.get_arch_list()"]\n'),
    Case("build-time-gpu-validation", D, "warning", (3, 1),
         "FROM x\nRUN <<EOF\npython3 -c 'import torch; print(torch.cuda.is_available())'\nEOF\n",
         "FROM x\nRUN <<EOF\npython3 -c 'import torch; print(torch.version.cuda)'\nEOF\n"),
    Case("build-time-gpu-validation", D, "error", (2, 5),
         'FROM x\nRUN python3 -c "from torch import cuda as c; assert c.is_available()"\n',
         'FROM x\nRUN python3 -c "from torch import cuda as c; print(c.__name__)"\n'),
    Case("build-time-gpu-validation", D, "error", (2, 5),
         'FROM x\nRUN python3 -c "from torch.cuda import is_available as i; assert i()"\n',
         'FROM x\nRUN python3 -c "from zlib import crc32 as i; assert i()"\n'),
    Case("build-time-gpu-validation", D, "error", (2, 13),
         "FROM x\nRUN true && nvidia-smi\n",
         "FROM x\nRUN nvidia-smi || true\nRUN if nvidia-smi; then echo; fi\n"
         "RUN command -v nvidia-smi\nRUN --device=nvidia.com/gpu nvidia-smi\n"),
    Case("kt-kernel-without-hwloc", D, "error", (4, 35),
         BASE + CLONE + ARCHS + KERNEL, BASE + HWLOC + CLONE + ARCHS + KERNEL),
    Case("kt-kernel-without-hwloc", D, "warning", (2, 17),
         BASE + "RUN pip install ktransformers\n",
         BASE + HWLOC + "RUN pip install ktransformers\n"),
    Case("kt-kernel-without-hwloc", D, "warning", (2, 17),
         BASE + "RUN pip install git+https://github.com/kvcache-ai/ktransformers.git\n",
         BASE + "RUN pip install kt-kernels ktransformers-docs\n"),
    Case("ktransformers-archive-without-cmake", D, "error", (4, 33),
         BASE + CLONE + THIRD + ARCHIVE, BASE + HWLOC + CLONE + THIRD + ARCHIVE),
    Case("ktransformers-archive-third-party", D, "error", (4, 33),
         BASE + HWLOC + CLONE + ARCHIVE, BASE + HWLOC + CLONE + THIRD + ARCHIVE),
    Case("kt-kernel-without-main-package", D, "error", (6, 6),
         BASE + HWLOC + CLONE + ARCHS + KERNEL + 'CMD ["python", "-m", "ktransformers.chat"]\n',
         BASE + HWLOC + CLONE + ARCHS + KERNEL + 'CMD ["python", "-m", "sglang.x"]\n'),
    Case("kt-kernel-cuda-archs", D, "warning", (4, 35),
         BASE + HWLOC + CLONE + KERNEL, BASE + HWLOC + CLONE + ARCHS + KERNEL),
    Case("commented-out-install", D, "warning", (3, 1),
         "FROM x\n# Placeholder: comes in phase 2\n# RUN pip install engine\n",
         "FROM x\n# RUN echo\n# what pip install engine would do\n"),
    Case("cuda-too-old-for-sm120", D, "error", (2, 6),
         "ARG V=12.1.1\nFROM nvidia/cuda:${V}-devel-ubuntu22.04\n", BASE),
    Case("cuda-too-old-for-sm120", S, "error", (1, 31),
         "pip install torch --index-url https://download.pytorch.org/whl/nightly/cu124\n",
         "pip install torch --index-url https://download.pytorch.org/whl/cu128\n"
         "echo https://download.pytorch.org/whl/cu121\n"),
    Case("prebuilt-engine-on-sm120", D, "warning", (2, 17),
         "FROM x\nRUN pip install ktransformers==0.4\n", "FROM x\nRUN pip install kt-docs\n"),
    Case("gvisor-with-gpu", C, "error", (4, 14),
         stack(f"image: x\nruntime: runsc\n{GPU}"), stack("image: x\nruntime: runsc")),
    Case("gvisor-with-gpu", S, "error", (1, 23),
         "docker run --gpus all --runtime=runsc image run\n",
         "docker run --runtime=runsc image run\ndocker run --gpus all image run\n"),
    Case("tensor-parallel-asymmetric-cards", S, "error", (1, len(SGLANG) + 2),
         f"{SGLANG} --tp-size=2\n", f"{SGLANG} --tp 1 --pipeline-parallel-size 2\n"),
    Case("split-mode-graph-moe", S, "error", (1, 14),
         f"llama-server --split-mode graph -m {R1}\n",
         f"llama-server --split-mode layer -m {R1}\n"
         "llama-server -sm graph -m Llama-3.3-70B-Q4_K_M.gguf\n"),
    Case("split-mode-graph-moe", C, "error", (6, 9),
         stack(f"image: x\ncommand:\n  - --model {R1}\n  - --split-mode graph"),
         stack(f"image: x\ncommand:\n  - --model {R1}")),
    Case("split-mode-graph-moe", S, "warning", (1, 13),
         "llama-bench -sm graph -m model.gguf\n", "llama-bench -m model.gguf\n"),
    Case("dynamo-single-node", S, "warning", (1, 1),
         "dynamo serve graph:Frontend\n", "echo dynamo\n"),
    Case("memgraph-avx512-on-zen5", C, "error", (5, 23),
         stack("image: memgraph/memgraph:3.7.2\nenvironment:\n"
               "  GLIBC_TUNABLES: glibc.cpu.hwcaps=-AVX512F,-AVX512VL"),
         stack(f"image: memgraph/memgraph\nenvironment: ['GLIBC_TUNABLES={FLAGS}']")),
    Case("fp8-kv-on-sm120", S, "error", (1, len(SGLANG) + 2),
         f"{SGLANG} --kv-cache-dtype fp8_e4m3\n", f"{SGLANG} --kv-cache-dtype bf16\n"),
    Case("sglang-kernels-on-sm120", S, "warning", (1, 1),
         "python -m sglang.launch_server --model x\n", f"{SGLANG} --model x\n"),
    Case("gguf-into-kt-kernel", S, "error", (1, 31),
         "python convert_cpu_weights.py --input-path /m/DeepSeek-R1-Q4_K_M\n",
         "python convert_cpu_weights.py --input-path /m/DeepSeek-R1-BF16\n"
         f"{SGLANG} --kt-method LLAMAFILE --kt-weight-path /m/x.gguf\n"),
    Case("kt-kernel-fp8-conversion", S, "error", (1, 47),
         "python -m kt_kernel.tools.convert_cpu_weights --input-type fp8\n",
         "python -m kt_kernel.tools.convert_cpu_weights --input-type bf16\n"),
    Case("checkpoint-larger-than-memory", S, "error", (1, len(SGLANG) + 10),
         f"{SGLANG} --model deepseek-ai/DeepSeek-R1\n",
         f"{SGLANG} --model deepseek-ai/DeepSeek-R1-Distill-Qwen-32B\n"),
    Case("ktransformers-without-sched-ext", S, "warning", (1, 1),
         "python -m ktransformers.local_chat\n",
         "export USE_BALANCE_SERVE=1\npython -m ktransformers.local_chat\n"),
    Case("exllamav3-with-deepseek", S, "error", (1, 1),
         "python -m exllamav3.chat -m /m/DeepSeek-R1\n",
         "python -m exllamav3.chat -m /m/DeepSeek-R1-Distill-Llama-8B\n"),
    Case("generic-image-tag", S, "warning", (1, 14),
         "docker build -t omni/engine:nightly .\n", "docker build -t omni/engine:phase2 .\n"),
    Case("generic-image-tag", C, "info", (3, 12),
         stack("image: engine\nbuild: ."), stack("image: redis")),
    Case("single-platform-image", C, "error", (3, 12),
         stack("image: mem0/mem0-api-server:latest"), stack("image: openmemory:1")),
    Case("single-platform-image", S, "error", (1, 19),
         "docker image pull mem0/mem0-api-server\n",
         "docker pull redis\n"),
    Case("healthcheck-curl", C, "error", (4, 31),
         stack(f"image: qdrant/qdrant:v1.9\n{CURL}"), stack(f"image: nginx:1.27\n{CURL}")),
    Case("healthcheck-curl", C, "error", (4, 38),
         stack('image: qdrant/qdrant:v1\nhealthcheck: {test: [CMD-SHELL, "wget -q --spider x"]}'),
         stack('image: redis:7-alpine\nhealthcheck: {test: ["CMD-SHELL", "wget -q --spider x"]}')),
    Case("healthcheck-curl", D, "error", (3, 17),
         "FROM python:3.12-slim\nCOPY curl.conf /etc\nHEALTHCHECK CMD curl -f http://127.0.0.1\n",
         "FROM x AS x\nFROM python:3.12-slim\nCOPY --from=x /usr/bin/curl /usr/bin/\n"
         "HEALTHCHECK CMD curl -f http://127.0.0.1\n"),
    Case("healthcheck-curl", D, "error", (2, 17),
         "FROM python:3.12-slim\nHEALTHCHECK CMD curl -f http://127.0.0.1 || exit 1\n",
         "FROM python:3.12-slim AS a\nRUN apt-get install -y curl=8.*\nFROM a\n"
         "HEALTHCHECK CMD curl -f http://127.0.0.1\n"),
    Case("healthcheck-curl", C, "info", (4, 31),
         stack(f"image: my/own:1\n{CURL}"), stack("image: my/own:1\nhealthcheck: {test: NONE}")),
    Case("cmd-shell-on-distroless", C, "error", (4, 27),
         stack('image: arizephoenix/phoenix:12\nhealthcheck: {  test: ["CMD-SHELL", "python"]}'),
         stack('image: arizephoenix/phoenix:12\nhealthcheck: {test: ["CMD", "python"]}')),
    Case("cmd-shell-on-distroless", D, "error", (2, 1),
         "FROM gcr.io/distroless/python3\nCMD python app.py\n",
         'FROM gcr.io/distroless/python3\nCMD ["python", "app.py"]\n'),
    Case("docker-exec-d-download", S, "warning", (1, 29),
         f"docker exec -d box bash -c '{GET}'\n",
         f"docker exec box bash -c '{GET}'\n"),
    Case("hf-transfer-many-shards", S, "warning", (1, 29),
         f"HF_HUB_ENABLE_HF_TRANSFER=1 {GET}\n",
         f"HF_HUB_ENABLE_HF_TRANSFER=1 {GET} one.gguf\nHF_HUB_DOWNLOAD_WORKERS=16 {GET}\n"),
    Case("download-before-architecture", P, "warning", (5, 20),
         book("- {id: get,  download: {repo: org/x-GGUF, to: /m}}"),
         book("- {id: arch, gguf: {repo: org/x-GGUF}}\n"
              "- {id: get,  download: {repo: org/x-GGUF, to: /m}}")),
    Case("kernel-6.12-ppa", S, "error", (1, 25),
         "sudo add-apt-repository ppa:arighi/sched-ext\n",
         "sudo add-apt-repository ppa:some/ppa\napt install linux-image-6.8.0-50\n"),
    Case("kernel-6.12-ppa", S, "error", (1, 18),
         "sudo apt install linux-image-6.12.13-arighi\n", "sudo apt install vim\n"),
    Case("pkill-f-as-rollback", S, "warning", (1, 1), "pkill -f sglang\n", "pkill sglang\n"),
    Case("pkill-f-as-rollback", S, "warning", (1, 1),
         "kill -9 $(pgrep -f sglang)\n",
         "kill $(cat x.pid)\nkill -0 $(pgrep -f x)\npgrep -f x\n"),
    Case("pkill-f-as-rollback", S, "warning", (1, 28),
         "pgrep -f sglang | xargs -r kill\n", "cat x.pid | xargs -r kill\n"),
    Case("pkill-f-as-rollback", S, "warning", (1, 41),
         "ps ax | grep sglang | awk 1 | xargs -n1 kill\n", "pgrep -f x; xargs rm\n"),
    Case("pkill-f-as-rollback", S, "warning", (1, 7),
         "trap 'pkill -f sglang' EXIT\n", "trap - EXIT\ntrap 'rm -f x' EXIT\n"),
    Case("pkill-f-as-rollback", P, "error", (7, 11),
         book("- id: back\n  script: |\n    pkill -9f sglang"),
         book("- id: back\n  script: |\n    docker exec box pkill -f sglang")),
    Case("missing-timeout", S, "warning", (2, 3),
         "while true; do\n  curl -s http://127.0.0.1:8000/v1/completions -d '{}'\ndone\n",
         "curl http://x/v1/completions\nwhile true; do\n  curl -sm 60 http://x/v1/completions\ndone\n"
         "until curl -sf http://x/health; do sleep 1; done\n"),
    Case("missing-timeout", P, "warning", (5, 24),
         book("- {id: build,    run: [cmake, --build, build, -j]}"),
         book("- {id: build, timeout: 2h, run: [cmake, --build, build, -j]}")),
]  # fmt: skip

DOCKERFILES = [
    "", "# words\nARG A=1\n", "FROM\n", "FROM a b\n", "FROM x\nFOO bar\nBAR foo\n",
    "FROM x\n{{ if a }}\n  FOO bar\n", "RUN x\nFROM x\n", "FROM x\nCMD [\n",
    "FROM x\nCMD ['a', 'b']\n", 'FROM x\nENTRYPOINT [ "a", b ]\n',
    'FROM x\nHEALTHCHECK CMD ["a"\n', "FROM x\nSHELL bash -c\n", "FROM x\nRUN <<EOF\na\n",
    "FROM x\nRUN a \\\n && echo 'b\n",
]  # fmt: skip
"""Texts that no builder takes."""
COMMENT = "# omni: ignore"
COMMENTS = [
    COMMENT,
    f"{COMMENT} no-such-rule F-001 because",
    f"{COMMENT} pkill-f-as-rollback",
    f"{COMMENT} pkill-f-as-rollback because I say so",
    f"{COMMENT} pkill-f-as-rollback F-003 of another rule",
    f"{COMMENT} pkill-f-as-rollback D-003",
]
"""Comments that would put a finding aside without a lesson or a reason."""
NOT_YAML = [
    "",
    "a: [",
    "a: *none",
    "\t",
    "[" * 5000,
    "a: &x [*x]\nb: *y",
    "- " * 300 + "x",
    "a: \x01",
]
NO_TEXT = [b"FROM x\n\xff", b"FROM x\n\0", b"#" * (files.MOST_BYTES + 1)]
"""Files that are not UTF-8 text of a size that a person writes."""
