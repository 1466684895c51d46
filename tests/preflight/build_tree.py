"""A source tree like that of KTransformers, as the seeds describe it, and its Dockerfile.

Each fault of the seeds is one change of it: `tree` and `DOCKERFILE` have none.
"""

from pathlib import Path

from console.checks.lint.rule import Facts

BLACKWELL = Facts(compute=((12, 0),))
FILES = {
    ".gitmodules": '[submodule "pybind11"]\n\tpath = third_party/pybind11\n'
    '[submodule "llama.cpp"]\n\tpath = third_party/llama.cpp\n',
    "third_party/pybind11/CMakeLists.txt": "project(pybind11)\n",
    "third_party/llama.cpp/CMakeLists.txt": "find_package(Vulkan REQUIRED)\n",
    "kt-kernel/setup.py": "import os, subprocess\nfrom setuptools import Extension, setup\n"
    'archs_env = os.environ.get("CPUINFER_CUDA_ARCHS", "80;86;89;90")\n'
    'subprocess.run(["cmake", "."])\n'
    'setup(name="kt-kernel", ext_modules=[Extension("kt_kernel_ext", [])])\n',
    "kt-kernel/pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n'
    '[project]\nname = "kt-kernel"\ndependencies = ["torch>=2.0", "safetensors"]\n',
    "kt-kernel/python/kt_kernel/__init__.py": "import torch, safetensors\nimport kt_kernel_ext\n",
    "kt-kernel/CMakeLists.txt": """\
project(kt)
option(WITH_SERVER "" OFF)
find_package(PkgConfig)
if(PKG_CONFIG_FOUND)
  pkg_search_module(HWLOC REQUIRED IMPORTED_TARGET hwloc)
else()
  message(FATAL_ERROR "FindHWLOC needs pkg-config program and PKG_CONFIG_PATH must contain the
    path to hwloc.pc file.")
endif()
if(WITH_SERVER OR WIN32)
  find_package(Boost REQUIRED)
endif()
pybind11_add_module(kt_kernel_ext MODULE ext.cpp)
""",
    "archive/setup.py": """\
import os
from setuptools import setup
class CMakeExtension: ...
with_balance = os.environ.get("USE_BALANCE_SERVE", "0") == "1"
modules = [CMakeExtension("cpuinfer_ext", "csrc/ktransformers_ext")]
if os.environ.get("USE_NPU", "0") == "1":
    modules = [CMakeExtension("cpuinfer_ext", "csrc/ktransformers_ext")]
    if with_balance:
        modules.append(CMakeExtension("balance_serve", "csrc/balance_serve"))
elif with_balance:
    modules.append(CMakeExtension("balance_serve", "csrc/balance_serve"))
subprocess.check_call(["cmake", "--build", "."])
setup(name="ktransformers", ext_modules=modules)
""",
    "archive/pyproject.toml": '[build-system]\nrequires = ["setuptools", "torch >= 2.3.0"]\n'
    '[project]\nname = "ktransformers"\ndependencies = ["torch >= 2.3.0", "PyYAML"]\n',
    "archive/csrc/ktransformers_ext/CMakeLists.txt": "project(ext)\n"
    "add_subdirectory(${CMAKE_CURRENT_SOURCE_DIR}/../../third_party/pybind11 pybind11)\n"
    "pybind11_add_module(cpuinfer_ext MODULE ext.cpp)\n",
    "archive/csrc/balance_serve/CMakeLists.txt": "project(balance_serve)\n"
    "find_package(TBB REQUIRED)\nfind_package(OpenSSL REQUIRED)\n"
    "pybind11_add_module(sched_ext MODULE bind.cpp)\n",
    "archive/ktransformers/__init__.py": "",
    "archive/ktransformers/local_chat.py": "import os, yaml, torch\n"
    "try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None\n"
    "from ktransformers.models.custom_cache import StaticCache\n",
    "archive/ktransformers/models/__init__.py": "",
    # F-023: line 25 of custom_cache.py, here after as many lines
    "archive/ktransformers/models/custom_cache.py": "#\n" * 24
    + "from ktransformers.server.balance_serve.settings import sched_ext\nStaticCache = 1\n",
    "archive/ktransformers/server/__init__.py": "",
    "archive/ktransformers/server/balance_serve/__init__.py": "",
    "archive/ktransformers/server/balance_serve/settings.py": "import os\nimport sched_ext\n",
}

DOCKERFILE = """\
FROM nvidia/cuda:12.8.0-devel-ubuntu22.04
RUN apt-get update && apt-get install -y --no-install-recommends \\
    git cmake build-essential python3.11 python3.11-dev \\
    pkg-config libhwloc-dev libtbb-dev libssl-dev
RUN pip install torch==2.9.1 --index-url https://download.pytorch.org/whl/cu128
ENV CPUINFER_CUDA_ARCHS="120" CPUINFER_USE_CUDA="1"
WORKDIR /workspace
RUN git clone --recursive https://github.com/kvcache-ai/ktransformers.git
WORKDIR /workspace/ktransformers
RUN pip install ./kt-kernel
ARG USE_BALANCE_SERVE=1
RUN rm -rf archive/third_party && cp -r third_party archive/ \\
 && pip install --no-build-isolation ./archive
CMD ["python", "-m", "ktransformers.local_chat"]
"""


def tree(place: Path, **changed: str | None) -> Path:
    """Write the tree below `place`; `changed` by name: other text, None for no such file."""
    root = place / "ktransformers"
    for name, text in {**FILES, **changed}.items():
        if text is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return root
