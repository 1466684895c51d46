"""What is set or installed on one of several ways is not known; builds as the engines' own
Dockerfiles have them (their structure, retyped) have no fault."""

from pathlib import Path

import pytest

from console.checks.lint import shell
from console.checks.lint.run import unit_of
from console.checks.lint.unit import whole
from console.checks.preflight import Level
from tests.preflight.test_sane_builds import said, written

CUDA = "ARG CUDA_VERSION=12.8.1\nFROM nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04\n"
APT = "RUN apt-get update && apt-get install -y python3-pip git g++ cmake\n"
INDEX = "https://download.pytorch.org/whl"
CASE = (
    'RUN case "$CUDA_VERSION" in 12.8.1) IDX=128 ;; 13.0.1) IDX=130 ;; esac'
    f" && pip install torch --extra-index-url {INDEX}/cu${{IDX}}\n"
)
FLASH = "RUN pip install https://h/flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-x.whl\n"
NO_TREE = {"README": ""}


@pytest.mark.parametrize(
    ("text", "branched"),
    [
        ("a=1; x", False), ("if t; then a=1; x; fi", True), ("if t; then :; else a=1; x; fi", True),
        ("case $V in 1) a=1; x;; esac", True), ("f() { a=1; x; }", True), ("t || x", True),
        ("[ -n $V ] && x", True), ("[[ $V = 1 ]] && y && x", True), ("test $V && y && x", True),
        ("y && x", False), ("cd d && y && x", False), ("y && x || z", True), ("x || z", False),
        ("if x; then y; fi", False), ("for i in 1 2; do x; done", False), ("(x)", False),
        ("y | x", False), ("if t; then y; elif x; then z; fi", True), ("! t && x", False),
    ],
)  # fmt: skip
def test_which_commands_run_on_one_way_only(text: str, branched: bool) -> None:
    (found,) = [one for one in shell.parse(whole(text)).commands if one.words[0].text == "x"]
    assert found.branched is branched


def test_a_variable_that_branches_set_is_not_known(tmp_path: Path) -> None:
    text = (
        "a=1\nb=1\nif t; then a=2; fi\nfor i in 1 2; do b=$i; done\nc=1\nif t; then c=2; fi\nc=3\n"
    )
    unit, _ = unit_of(tmp_path / "x.sh", text)
    assert unit is not None
    assert unit.values == {"c": "3"}


ARMS = [
    CASE + FLASH,
    CASE.replace("IDX=130", "IDX=118") + FLASH,
    f'RUN if [ "${{CUDA_VERSION%%.*}}" = 13 ]; then pip install torch --index-url {INDEX}/cu130; '
    f"else pip install torch==2.8.0 --index-url {INDEX}/cu128; fi\n{FLASH}",
    f"RUN pip install torch==2.8.0 --index-url {INDEX}/cu128\n"
    f"RUN if [ $C = 13 ]; then pip install torch==2.9.0 --index-url {INDEX}/cu130; fi\n{FLASH}",
    f"RUN pip install torch==2.8.0 --index-url {INDEX}/cu128\n"
    "RUN if [ $C = 13 ]; then pip install https://h/x-1+cu13torch2.9-cp312-cp312-x.whl; "
    "else pip install https://h/x-1+cu12torch2.8-cp312-cp312-x.whl; fi\n",
    f"RUN IDX=128; [ $C = 13 ] && IDX=130; pip install torch --index-url {INDEX}/cu$IDX\n{FLASH}",
]


@pytest.mark.parametrize("lines", ARMS)
def test_arms_are_not_held_against_each_other(tmp_path: Path, lines: str) -> None:
    asked = written(tmp_path, CUDA + APT + "COPY . /s\n" + lines, NO_TREE)
    assert [one for one in said(asked, Level.WARN) if "PyTorch" in one] == []


def test_what_is_wrong_on_every_way_is_still_named(tmp_path: Path) -> None:
    lines = f"RUN IDX=130 && pip install torch==2.8.0 --index-url {INDEX}/cu$IDX\n{FLASH}"
    asked = written(tmp_path, CUDA + APT + "COPY . /s\n" + lines, NO_TREE)
    (found,) = [one for one in said(asked) if "PyTorch" in one]
    assert "compiled for CUDA 12, not 13" in found


TORCH = {
    "CMakeLists.txt": "project(x LANGUAGES CXX)\nfind_package(Torch REQUIRED)\n",
    "setup.py": "from setuptools import setup\nsetup(name='x')\n",
}
COMPILE = "COPY . /w\nWORKDIR /w\nRUN cmake -S . -B build && cmake --build build\n"


@pytest.mark.parametrize(
    "base",
    [
        "FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-devel\n",
        "FROM nvcr.io/nvidia/pytorch:25.08-py3\n",
        "FROM rocm/pytorch:latest\n", "FROM vllm/vllm-openai:v0.11.0\n",
        "FROM lmsysorg/sglang:v0.5.5\n", "FROM pytorch/pytorch:2.8.0 AS a\nFROM a\n",
        "FROM ubuntu:24.04\nRUN pip install torch==2.8.0\n",
        "FROM ubuntu:24.04\nRUN pip install vllm\n",
        "FROM ubuntu:24.04\nCOPY r.txt r.txt\nRUN pip install -r r.txt\n",
    ],
)  # fmt: skip
def test_an_image_that_has_torch_needs_none(tmp_path: Path, base: str) -> None:
    text = base + "RUN apt-get update && apt-get install -y cmake g++\n" + COMPILE
    found = said(written(tmp_path, text, {**TORCH, "r.txt": "torch\n"}), Level.WARN)
    assert [one for one in found if "Torch" in one] == []


def test_pip_brings_what_apt_has_not(tmp_path: Path) -> None:
    from tests.preflight.test_sources import faults

    text = "FROM ubuntu:24.04\nRUN apt-get update && apt-get install -y cmake g++\n" + COMPILE
    (found,) = [one for one in faults(written(tmp_path, text, TORCH), Level.WARN)
                if "Torch" in one.title]  # fmt: skip
    assert found.hint == "RUN pip install torch, before the build"


OFFICIAL = {
    "ktransformers": CUDA.replace("devel", "cudnn-devel")
    .replace("\n", " AS base\n", 2)
    .replace("12.8.1 AS base", "12.8.1")
    + APT
    + """\
ARG GITHUB_ARTIFACTORY=github.com
ARG WHEEL=flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl
FROM base AS framework
ARG CUDA_VERSION
ARG WHEEL
ARG MODE=sft
RUN conda create -n serve python=3.12 -y && if [ "$MODE" = sft ]; then conda create -n tune -y; fi
RUN git clone --depth 1 https://${GITHUB_ARTIFACTORY}/kvcache-ai/app.git /w/app \\
 && cd /w/app && git submodule update --init --recursive
RUN case "$CUDA_VERSION" in 12.8.1) IDX=128 ;; 13.0.1) IDX=130 ;; *) exit 1 ;; esac \\
 && if [ "$CUDA_VERSION" = 13.0.1 ]; then /e/serve/bin/pip install \\
 https://h/k-1+cu130-cp310-abi3-x.whl; \\
 elif [ "$CUDA_VERSION" = 12.8.1 ]; then /e/serve/bin/pip install sgl-kernel==1; fi \\
 && /e/serve/bin/pip install -e "python[all]" --extra-index-url INDEX/cu${IDX}
RUN if [ "$MODE" = sft ]; then case "$CUDA_VERSION" in 12.8.1) IDX=128 ;; 13.0.1) IDX=130 ;; esac \\
 && /e/tune/bin/pip install torch==2.8.0 torchvision --extra-index-url INDEX/cu${IDX}; fi
RUN if [ "$MODE" = sft ]; then /e/tune/bin/pip install /w/${WHEEL}; fi
RUN if [ "${CUDA_VERSION%%.*}" = 13 ]; then /e/serve/bin/pip install nvidia-nccl-cu13==2.28.3; fi
""",
    "sglang": CUDA.replace("\nFROM", "\nFROM", 1)
    + APT
    + """\
ARG BRANCH=remote
COPY . /src
RUN if [ "$BRANCH" = local ]; then cp -r /src /w/app; else \\
 git clone --depth=1 https://github.com/x/app.git /w/app; fi
RUN cd /w/app && case "$CUDA_VERSION" in 12.6.1) I=126 ;; 12.8.1) I=128 ;; 13.0.1) I=130 ;; esac \\
 && if [ "$CUDA_VERSION" = 12.6.1 ]; then \\
 python3 -m pip install https://h/k-1+cu124-cp310-abi3-x.whl --no-deps; fi \\
 && python3 -m pip install -e . --extra-index-url INDEX/cu${I} \\
 && if [ "${CUDA_VERSION%%.*}" = 13 ]; then python3 -m pip uninstall -y torch; \\
 python3 -m pip install torch==2.9.0 --extra-index-url INDEX/cu${I}; fi
RUN cd /w/DeepEP && case "$CUDA_VERSION" in 12.6.1) L='9.0' ;; *) L='9.0;10.0' ;; esac \\
 && TORCH_CUDA_ARCH_LIST="$L" pip install --no-build-isolation .
""",
    "vllm": CUDA.replace("ubuntu24.04\n", "ubuntu20.04 AS base\n")
    + APT
    + """\
ARG TARGETPLATFORM
RUN if [ "$TARGETPLATFORM" = linux/arm64 ]; then uv pip install --system --index-url \\
 INDEX/nightly/cu$(echo $CUDA_VERSION | cut -d. -f1,2 | tr -d '.') \\
 "torch==2.8.0.dev20250318+cu128"; fi
COPY requirements/cuda.txt requirements/cuda.txt
RUN uv pip install --system -r requirements/cuda.txt \\
 --extra-index-url INDEX/cu$(echo $CUDA_VERSION | tr -d .)
FROM base AS build
COPY . .
RUN if [ "$USE_SCCACHE" = 1 ]; then python3 setup.py bdist_wheel --dist-dir=dist; fi
RUN if [ "$USE_SCCACHE" != 1 ]; then rm -rf .deps && \\
 python3 setup.py bdist_wheel --dist-dir=dist; fi
FROM nvidia/cuda:12.8.1-devel-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip
RUN --mount=type=bind,from=build,src=/dist,target=/v/dist uv pip install --system /v/dist/*.whl
""",
    "llama.cpp": """\
ARG CUDA_VERSION=12.8.1
ARG BASE=nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04
FROM ${BASE} AS build
ARG CUDA_DOCKER_ARCH=default
RUN apt-get update && apt-get install -y build-essential cmake python3 python3-pip git libssl-dev
WORKDIR /app
COPY . .
RUN if [ "${CUDA_DOCKER_ARCH}" != "default" ]; then \\
 export A="-DCMAKE_CUDA_ARCHITECTURES=${CUDA_DOCKER_ARCH}"; fi \\
 && cmake -B build -DGGML_NATIVE=OFF -DGGML_CUDA=ON ${A} \\
 -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined . \\
 && cmake --build build --config Release -j$(nproc)
FROM nvidia/cuda:${CUDA_VERSION}-runtime-ubuntu24.04
RUN apt-get update && apt-get install -y libgomp1 curl
COPY --from=build /app/build /app
HEALTHCHECK CMD [ "curl", "-f", "http://localhost:8080/health" ]
""",
    "ik_llama.cpp": """\
ARG CUDA_VERSION=12.8.1
FROM docker.io/nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04 AS build
RUN apt-get update && apt-get install -yq build-essential git wget curl libcurl4-openssl-dev cmake
RUN git clone --depth 1 --recurse-submodules --shallow-submodules https://github.com/i/app.git /app
WORKDIR /app
RUN if [ "$ARCH" != default ]; then export X="-DCMAKE_CUDA_ARCHITECTURES=$ARCH"; fi \\
 && cmake -B build -DGGML_CUDA=ON -DGGML_NATIVE=ON $X && cmake --build build -j$(nproc)
FROM docker.io/nvidia/cuda:${CUDA_VERSION}-runtime-ubuntu24.04
COPY --from=build /app/build /app/build
""",
}


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_engines_own_dockerfiles_have_no_fault(tmp_path: Path, name: str) -> None:
    files = {"README": "", "requirements/cuda.txt": "torch==2.8.0\n"}
    if name in ("sglang", "vllm"):
        files["setup.py"] = "from setuptools import setup\nsetup(name='app')\n"
    if "llama" in name:
        files["CMakeLists.txt"] = "project(x)\nfind_package(Threads REQUIRED)\n"
    if name == "ik_llama.cpp":
        files |= {".gitmodules": '[submodule "x"]\n\tpath = x\n', "x/y": ""}
    asked = written(tmp_path, OFFICIAL[name].replace("INDEX", INDEX), files)
    assert said(asked) == []
