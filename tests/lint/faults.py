"""For every rule the fault as small as it gets, and the same thing done right."""

from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from console.checks.lint import files
from console.checks.lint.rule import Facts
from console.checks.lint.run import of_unit, unit_of
from console.checks.lint.unit import Finding

D, S, C, P = "Dockerfile", "trial.sh", "stack.yaml", "book.yaml"


class Case(NamedTuple):
    """`wrong` has the fault, where the test of words says; `right` has none of this rule. The name
    is that of the rule, and what makes this one of its cases."""

    name: str
    file: str
    wrong: str
    right: str

    @property
    def rule(self) -> str:
        return self.name.partition(":")[0]


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
    Case("ggml-cuda-no-vmm: cmake", S, "cmake -B build \\\n -DGGML_CUDA_NO_VMM=ON\n",
         "cmake -DGGML_CUDA_NO_VMM=OFF\n"),
    Case("ggml-cuda-no-vmm: in ENV", D,
         'FROM x\nENV CMAKE_ARGS="-DA=1 -DGGML_CUDA_NO_VMM:BOOL=1"\n',
         "FROM x\nENV A=ON\n"),
    Case("cuda-build-inside-image", D, "FROM x\nRUN cmake -B build -DGGML_CUDA=ON\n",
         "FROM x\nRUN cmake -DGGML_CUDA=OFF\n"),
    Case("shallow-clone-with-submodules: shallow submodules", D,
         "FROM x\nRUN git clone --depth 1 --recurse-submodules --shallow-submodules URL\n",
         "FROM x\nRUN git clone --recursive URL\n"),
    Case("shallow-clone-with-submodules: a tree that has submodules", S,
         "git clone --depth=1 https://github.com/kvcache-ai/ktransformers.git\n",
         "git clone --depth 1 https://github.com/ggml-org/llama.cpp\n"),
    Case("shallow-clone-with-submodules: recursive", S, "git clone --depth 1 --recursive URL\n",
         "git clone --recursive URL\n"),
    Case("build-time-gpu-validation: the architectures of torch", D,
         "FROM x\nRUN python3 -c \"import torch; assert 'sm_120' in torch.cuda.get_arch_list()\"\n",
         'FROM x\nCMD ["python3", "-c", "import torch; torch.cuda.get_arch_list()"]\n'),
    Case("build-time-gpu-validation: in a here document", D,
         "FROM x\nRUN <<EOF\npython3 -c 'import torch; print(torch.cuda.is_available())'\nEOF\n",
         "FROM x\nRUN <<EOF\npython3 -c 'import torch; print(torch.version.cuda)'\nEOF\n"),
    Case("build-time-gpu-validation: a module by another name", D,
         'FROM x\nRUN python3 -c "from torch import cuda as c; assert c.is_available()"\n',
         'FROM x\nRUN python3 -c "from torch import cuda as c; print(c.__name__)"\n'),
    Case("build-time-gpu-validation: a function by another name", D,
         'FROM x\nRUN python3 -c "from torch.cuda import is_available as i; assert i()"\n',
         'FROM x\nRUN python3 -c "from zlib import crc32 as i; assert i()"\n'),
    Case("build-time-gpu-validation: nvidia-smi", D, "FROM x\nRUN true && nvidia-smi\n",
         "FROM x\nRUN nvidia-smi || true\nRUN if nvidia-smi; then echo; fi\n"
         "RUN command -v nvidia-smi\nRUN --device=nvidia.com/gpu nvidia-smi\n"),
    Case("kt-kernel-without-hwloc: its tree", D, BASE + CLONE + ARCHS + KERNEL,
         BASE + HWLOC + CLONE + ARCHS + KERNEL),
    Case("kt-kernel-without-hwloc: from the index", D, BASE + "RUN pip install ktransformers\n",
         BASE + HWLOC + "RUN pip install ktransformers\n"),
    Case("kt-kernel-without-hwloc: from git", D,
         BASE + "RUN pip install git+https://github.com/kvcache-ai/ktransformers.git\n",
         BASE + "RUN pip install kt-kernels ktransformers-docs\n"),
    Case("ktransformers-archive-without-cmake", D, BASE + CLONE + THIRD + ARCHIVE,
         BASE + HWLOC + CLONE + THIRD + ARCHIVE),
    Case("ktransformers-archive-third-party", D, BASE + HWLOC + CLONE + ARCHIVE,
         BASE + HWLOC + CLONE + THIRD + ARCHIVE),
    Case("kt-kernel-without-main-package", D,
         BASE + HWLOC + CLONE + ARCHS + KERNEL + 'CMD ["python", "-m", "ktransformers.chat"]\n',
         BASE + HWLOC + CLONE + ARCHS + KERNEL + 'CMD ["python", "-m", "sglang.x"]\n'),
    Case("kt-kernel-cuda-archs", D, BASE + HWLOC + CLONE + KERNEL,
         BASE + HWLOC + CLONE + ARCHS + KERNEL),
    Case("commented-out-install", D,
         "FROM x\n# Placeholder: comes in phase 2\n# RUN pip install engine\n",
         "FROM x\n# RUN echo\n# what pip install engine would do\n"),
    Case("cuda-too-old-for-sm120: an image", D,
         "ARG V=12.1.1\nFROM nvidia/cuda:${V}-devel-ubuntu22.04\n",
         BASE),
    Case("cuda-too-old-for-sm120: wheels", S,
         "pip install torch --index-url https://download.pytorch.org/whl/nightly/cu124\n",
         "pip install torch --index-url https://download.pytorch.org/whl/cu128\n"
         "echo https://download.pytorch.org/whl/cu121\n"),
    Case("prebuilt-engine-on-sm120", D, "FROM x\nRUN pip install ktransformers==0.4\n",
         "FROM x\nRUN pip install kt-docs\n"),
    Case("gvisor-with-gpu: compose", C, stack(f"image: x\nruntime: runsc\n{GPU}"),
         stack("image: x\nruntime: runsc")),
    Case("gvisor-with-gpu: docker run", S, "docker run --gpus all --runtime=runsc image run\n",
         "docker run --runtime=runsc image run\ndocker run --gpus all image run\n"),
    Case("tensor-parallel-asymmetric-cards", S, f"{SGLANG} --tp-size=2\n",
         f"{SGLANG} --tp 1 --pipeline-parallel-size 2\n"),
    Case("split-mode-graph-moe: an MoE by its name", S,
         f"llama-server --split-mode graph -m {R1}\n",
         f"llama-server --split-mode layer -m {R1}\n"
         "llama-server -sm graph -m Llama-3.3-70B-Q4_K_M.gguf\n"
         "llama-server -sm graph -m GLM-4.6-IQ4_KS-00001-of-00005.gguf\n"
         "llama-server --split-mode=graph --model=Qwen3-235B-A22B-IQ5_K.gguf\n"
         "llama-server -sm graph -m Mixtral-8x7B-Q4_K_M.gguf\n"),
    Case("split-mode-graph-moe: an MoE by its size", S,
         "llama-server --split_mode graph -m Qwen3-Next-80B-A3B.gguf\n",
         "llama-server --split_mode graph -m Qwen3-30B-A3B.gguf\n"),
    Case("split-mode-graph-moe: compose", C,
         stack(f"image: x\ncommand:\n  - --model {R1}\n  - --split-mode graph"),
         stack(f"image: x\ncommand:\n  - --model {R1}")),
    Case("split-mode-graph-moe: a model nobody knows", S, "llama-bench -sm graph -m model.gguf\n",
         "llama-bench -m model.gguf\n"),
    Case("dynamo-single-node", S, "dynamo serve graph:Frontend\n", "echo dynamo\n"),
    Case("memgraph-avx512-on-zen5", C, stack("image: memgraph/memgraph:3.7.2\nenvironment:\n"
         "  GLIBC_TUNABLES: glibc.cpu.hwcaps=-AVX512F,-AVX512VL"),
         stack(f"image: memgraph/memgraph\nenvironment: ['GLIBC_TUNABLES={FLAGS}']")),
    Case("fp8-kv-on-sm120", S, f"{SGLANG} --kv-cache-dtype fp8_e4m3\n",
         f"{SGLANG} --kv-cache-dtype bf16\n"),
    Case("sglang-kernels-on-sm120", S, "python -m sglang.launch_server --model x\n",
         f"{SGLANG} --model x\n"),
    Case("gguf-into-kt-kernel", S,
         "python convert_cpu_weights.py --input-path /m/DeepSeek-R1-Q4_K_M\n",
         "python convert_cpu_weights.py --input-path /m/DeepSeek-R1-BF16\n"
         f"{SGLANG} --kt-method LLAMAFILE --kt-weight-path /m/x.gguf\n"),
    Case("kt-kernel-fp8-conversion", S,
         "python -m kt_kernel.tools.convert_cpu_weights --input-type fp8\n",
         "python -m kt_kernel.tools.convert_cpu_weights --input-type bf16\n"),
    Case("amx-method-without-amx: a script", S,
         f"{SGLANG} --kt-method AMXINT8 --kt-weight-path /w\n",
         f"{SGLANG} --kt-method MOE_INT8 --kt-weight-path /w\n"),
    Case("amx-method-without-amx: the default of a variable", C,
         stack(f"image: x\ncommand: {SGLANG} --kt-method "
         "${KT_METHOD:-AMXINT4}"),
         stack(f"image: x\ncommand: {SGLANG} --kt-method ${{KT_METHOD:-FP8}}")),
    Case("checkpoint-larger-than-memory", S, f"{SGLANG} --model deepseek-ai/DeepSeek-R1\n",
         f"{SGLANG} --model deepseek-ai/DeepSeek-R1-Distill-Qwen-32B\n"),
    Case("ktransformers-without-sched-ext", S, "python -m ktransformers.local_chat\n",
         "export USE_BALANCE_SERVE=1\npython -m ktransformers.local_chat\n"),
    Case("exllamav3-with-deepseek", S, "python -m exllamav3.chat -m /m/DeepSeek-R1\n",
         "python -m exllamav3.chat -m /m/DeepSeek-R1-Distill-Llama-8B\n"),
    Case("generic-image-tag: docker build", S, "docker build -t omni/engine:nightly .\n",
         "docker build -t omni/engine:phase2 .\n"),
    Case("generic-image-tag: compose", C, stack("image: engine\nbuild: ."), stack("image: redis")),
    Case("single-platform-image: compose", C, stack("image: mem0/mem0-api-server:latest"),
         stack("image: openmemory:1")),
    Case("single-platform-image: docker pull", S, "docker image pull mem0/mem0-api-server\n",
         "docker pull redis\n"),
    Case("healthcheck-curl: curl in compose", C, stack(f"image: qdrant/qdrant:v1.9\n{CURL}"),
         stack(f"image: nginx:1.27\n{CURL}")),
    Case("healthcheck-curl: wget in compose", C,
         stack('image: qdrant/qdrant:v1\nhealthcheck: {test: [CMD-SHELL, "wget -q --spider x"]}'),
         stack('image: redis:7-alpine\nhealthcheck: {test: ["CMD-SHELL", "wget -q --spider x"]}')),
    Case("healthcheck-curl: a command of a Dockerfile", D,
         "FROM python:3.12-slim\nCOPY curl.conf /etc\nHEALTHCHECK CMD curl -f http://127.0.0.1\n",
         "FROM x AS x\nFROM python:3.12-slim\nCOPY --from=x /usr/bin/curl /usr/bin/\n"
         "HEALTHCHECK CMD curl -f http://127.0.0.1\n"),
    Case("healthcheck-curl: a shell of a Dockerfile", D,
         "FROM python:3.12-slim\nHEALTHCHECK CMD curl -f http://127.0.0.1 || exit 1\n",
         "FROM python:3.12-slim AS a\nRUN apt-get install -y curl=8.*\nFROM a\n"
         "HEALTHCHECK CMD curl -f http://127.0.0.1\n"),
    Case("healthcheck-curl: an image nobody knows", C, stack(f"image: my/own:1\n{CURL}"),
         stack("image: my/own:1\nhealthcheck: {test: NONE}")),
    Case("cmd-shell-on-distroless: compose", C,
         stack('image: arizephoenix/phoenix:12\nhealthcheck: {  test: ["CMD-SHELL", "python"]}'),
         stack('image: arizephoenix/phoenix:12\nhealthcheck: {test: ["CMD", "python"]}')),
    Case("cmd-shell-on-distroless: a Dockerfile", D,
         "FROM gcr.io/distroless/python3\nCMD python app.py\n",
         'FROM gcr.io/distroless/python3\nCMD ["python", "app.py"]\n'),
    Case("docker-exec-d-download", S, f"docker exec -d box bash -c '{GET}'\n",
         f"docker exec box bash -c '{GET}'\n"),
    Case("hf-transfer-many-shards", S, f"HF_HUB_ENABLE_HF_TRANSFER=1 {GET}\n",
         f"HF_HUB_ENABLE_HF_TRANSFER=1 {GET} one.gguf\nHF_HUB_DOWNLOAD_WORKERS=16 {GET}\n"),
    Case("download-before-architecture", P,
         book("- {id: get,  download: {repo: org/x-GGUF, to: /m}}"),
         book("- {id: arch, gguf: {repo: org/x-GGUF}}\n"
         "- {id: get,  download: {repo: org/x-GGUF, to: /m}}")),
    Case("kernel-6.12-ppa: its archive", S, "sudo add-apt-repository ppa:arighi/sched-ext\n",
         "sudo add-apt-repository ppa:some/ppa\napt install linux-image-6.8.0-50\n"),
    Case("kernel-6.12-ppa: its package", S, "sudo apt install linux-image-6.12.13-arighi\n",
         "sudo apt install vim\n"),
    Case("pkill-f-as-rollback: pkill", S, "pkill -f sglang\n", "pkill sglang\n"),
    Case("pkill-f-as-rollback: kill of pgrep", S, "kill -9 $(pgrep -f sglang)\n",
         "kill $(cat x.pid)\nkill -0 $(pgrep -f x)\npgrep -f x\n"),
    Case("pkill-f-as-rollback: pgrep to xargs", S, "pgrep -f sglang | xargs -r kill\n",
         "cat x.pid | xargs -r kill\n"),
    Case("pkill-f-as-rollback: ps to xargs", S, "ps ax | grep sglang | awk 1 | xargs -n1 kill\n",
         "pgrep -f x; xargs rm\n"),
    Case("pkill-f-as-rollback: in a trap", S, "trap 'pkill -f sglang' EXIT\n",
         "trap - EXIT\ntrap 'rm -f x' EXIT\n"),
    Case("pkill-f-as-rollback: in a playbook", P,
         book("- id: back\n  script: |\n    pkill -9f sglang"),
         book("- id: back\n  script: |\n    docker exec box pkill -f sglang")),
    Case("missing-timeout: curl in a loop", S,
         "while true; do\n  curl -s http://127.0.0.1:8000/v1/completions -d '{}'\ndone\n",
         "curl http://x/v1/completions\nwhile true; do\n  curl -sm 60 http://x/v1/completions\ndone\n"
         "until curl -sf http://x/health; do sleep 1; done\n"),
    Case("missing-timeout: a step", P, book("- {id: build,    run: [cmake, --build, build, -j]}"),
         book("- {id: build, timeout: 2h, run: [cmake, --build, build, -j]}")),
    Case("engine-refuses-option: no number", S, "vllm serve x --max-model-len 80x\n",
         "vllm serve x --max-model-len 80k\nvllm serve --help\nvllm serve x --max-num-seqs $SEQS\n"
         "xargs llama-server -m\n"),
    Case("engine-refuses-option: no value", C,
         stack("image: vllm/vllm-openai:v0.33.0\ncommand: [--model, x, --max-num-seqs]"),
         stack("image: vllm/vllm-openai:v0.33.0\nbuild: .\ncommand: [--model, x, --max-num-seqs]")),
    Case("engine-refuses-option: a variable", D,
         'FROM ghcr.io/ggml-org/llama.cpp:server\nENV LLAMA_ARG_CTX_SIZE=all\nCMD ["-m", "x"]\n',
         'FROM ghcr.io/ggml-org/llama.cpp:server\nENTRYPOINT ["/start"]\nCMD ["-c", "all"]\n'),
    Case("engine-refuses-option: a variable of env", S,
         "env LLAMA_ARG_CTX_SIZE=all llama-server -m x.gguf\n",
         "env LLAMA_ARG_CTX_SIZE=8 llama-server -m x.gguf\n"),
    Case("engine-refuses-option: an option nobody knows", S,
         "llama-server -m x.gguf --frobnicate\n",
         "llama-server -m x.gguf -mla 3 -rtr\nllama-server -m x.gguf --frob$OWN\n"),
    Case("engine-refuses-option: docker run", S,
         "docker run ghcr.io/ggml-org/llama.cpp:server -m x.gguf --no-mmap\n",
         "llama-server -m x.gguf --no-mmap\n"),
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
    "", "a: [", "a: *none", "\t", "[" * 200 + "]" * 200, "a: &x [*x]\nb: *y", "- " * 300 + "x",
    "a: \x01",
]  # fmt: skip
NO_TEXT = [b"FROM x\n\xff", b"FROM x\n\0", b"#" * (files.MAX_BYTES + 1)]
"""Files that are not UTF-8 text of a size that a person writes."""


GIB = 1 << 30
UNEQUAL = Facts(
    (96 * GIB, 32 * GIB), ((12, 0), (12, 0)), 377 * GIB, 207 * GIB,
    "AMD Ryzen Threadripper PRO 9995WX",
)  # fmt: skip
EQUAL = Facts((80 * GIB, 80 * GIB), ((9, 0), (9, 0)), 2048 * GIB, 0, "Intel Xeon w9-3495X")
NOTHING = Facts()


def found(name: str, text: str, facts: Facts = UNEQUAL) -> list[Finding]:
    """What lint says of a text in a file of that name; the file is not on any disk."""
    unit, _ = unit_of(Path(name), text)
    assert unit is not None, name
    return of_unit(unit, facts)


def said(name: str, text: str, facts: Facts = UNEQUAL) -> list[tuple[str, str, int, int]]:
    """(rule, severity, line, column) of each open finding."""
    return [
        (one.rule, str(one.severity), one.line, one.column)
        for one in found(name, text, facts)
        if not one.suppressed
    ]
