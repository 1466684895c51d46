"""What CMake asks for, by the name it is asked by, and the packages of Debian that bring it."""

from __future__ import annotations

LIBRARIES: dict[str, tuple[str, ...]] = {
    "pkgconfig": ("pkg-config", "pkgconf", "pkgconf-pkg-config"),
    "hwloc": ("libhwloc-dev", "hwloc-devel", "hwloc-dev"),
    "numa": ("libnuma-dev", "numactl-devel"),
    "openssl": ("libssl-dev", "openssl-devel"),
    "curl": ("libcurl4-openssl-dev", "libcurl4-gnutls-dev", "libcurl4-nss-dev", "libcurl-devel"),
    "libcurl": ("libcurl4-openssl-dev", "libcurl4-gnutls-dev", "libcurl4-nss-dev", "libcurl-devel"),
    "tbb": ("libtbb-dev", "libtbb2-dev", "tbb-devel"),
    "zlib": ("zlib1g-dev", "zlib-devel"),
    "fmt": ("libfmt-dev", "fmt-devel"),
    "gflags": ("libgflags-dev", "gflags-devel"),
    "glog": ("libgoogle-glog-dev", "glog-devel"),
    "boost": ("libboost-all-dev", "libboost-dev", "boost-devel"),
    "protobuf": ("libprotobuf-dev", "protobuf-devel"),
    "grpc": ("libgrpc++-dev", "grpc-devel"),
    "eigen3": ("libeigen3-dev", "eigen3-devel"),
    "blas": ("libopenblas-dev", "libblas-dev", "libblis-dev", "intel-mkl", "openblas-devel"),
    "lapack": ("liblapack-dev", "libopenblas-dev", "intel-mkl", "lapack-devel"),
    "openblas": ("libopenblas-dev", "openblas-devel"),
    "mpi": ("libopenmpi-dev", "libmpich-dev", "openmpi-devel"),
    "nlohmann_json": ("nlohmann-json3-dev",),
    "spdlog": ("libspdlog-dev", "spdlog-devel"),
    "gtest": ("libgtest-dev", "gtest-devel"),
    "benchmark": ("libbenchmark-dev",),
    "absl": ("libabsl-dev",),
    "vulkan": ("libvulkan-dev", "vulkan-loader-devel"),
    "opencl": ("ocl-icd-opencl-dev", "opencl-headers"),
    "liburing": ("liburing-dev",),
    "libaio": ("libaio-dev", "libaio-devel"),
    "aio": ("libaio-dev", "libaio-devel"),
    "xxhash": ("libxxhash-dev", "xxhash-devel"),
    "prometheus-cpp": ("libprometheus-cpp-dev", "prometheus-cpp-dev"),
    "zstd": ("libzstd-dev", "libzstd-devel"),
    "libzstd": ("libzstd-dev", "libzstd-devel"),
    "libibverbs": ("libibverbs-dev", "rdma-core-devel"),
    "ibverbs": ("libibverbs-dev", "rdma-core-devel"),
    "jemalloc": ("libjemalloc-dev", "jemalloc-devel"),
    "jsoncpp": ("libjsoncpp-dev", "jsoncpp-devel"),
    "yaml-cpp": ("libyaml-cpp-dev", "yaml-cpp-devel"),
    "opencv": ("libopencv-dev", "opencv-devel"),
    "libxml2": ("libxml2-dev", "libxml2-devel"),
    "git": ("git",),
    "bison": ("bison",),
    "flex": ("flex",),
}
"""`find_package`, `pkg_check_modules` and their prefixes, in small letters → packages, any of
which will do; Debian's is first."""

_WITH_MPI = ("libopenmpi-dev", "libhwloc-dev", "libibverbs-dev", "zlib1g-dev")
DEPENDS: dict[str, tuple[str, ...]] = {
    "libopenmpi-dev": _WITH_MPI, "mpi-default-dev": _WITH_MPI, "libboost-all-dev": _WITH_MPI,
    "libgrpc++-dev": ("libssl-dev", "zlib1g-dev", "libabsl-dev"),
    "libgrpc-dev": ("libssl-dev", "zlib1g-dev", "libabsl-dev"), "libprotobuf-dev": ("zlib1g-dev",),
    "libglib2.0-dev": ("pkg-config", "zlib1g-dev"), "libgoogle-glog-dev": ("libgflags-dev",),
    "libhdf5-dev": ("libcurl4-openssl-dev", "libssl-dev", "zlib1g-dev"),
}  # fmt: skip
"""A package of Debian → packages of the table above that it depends on."""

FROM_PIP: dict[str, tuple[str, ...]] = {
    "pybind11": ("pybind11",), "torch": ("torch",), "nanobind": ("nanobind",),
    "tensorflow": ("tensorflow",),
}  # fmt: skip
"""The same where pip brings it as well, or alone."""

ALWAYS = frozenset(
    {"threads", "openmp", "python", "python3", "pythoninterp", "pythonlibs", "cuda",
     "cudatoolkit", "pythoninterpreter"}
)  # fmt: skip
"""Brought by what a build with them has anyhow: the compiler, Python, a `devel` image."""

PROVIDES: dict[str, str] = {
    "yaml": "pyyaml", "cv2": "opencv-python", "pil": "pillow", "sklearn": "scikit-learn",
    "google": "protobuf", "dateutil": "python-dateutil", "bs4": "beautifulsoup4", "zmq": "pyzmq",
    "serial": "pyserial", "dotenv": "python-dotenv", "jwt": "pyjwt", "git": "gitpython",
    "attr": "attrs", "pkg_resources": "setuptools", "jose": "python-jose", "pynvml": "nvidia-ml-py",
    "multipart": "python-multipart", "fitz": "pymupdf",
}  # fmt: skip
"""The module in small letters → the project on PyPI, where the names differ."""


BRINGS: dict[str, str] = {
    "torch": "numpy typing-extensions filelock sympy networkx jinja2 fsspec triton",
    "transformers": "numpy pyyaml safetensors tokenizers huggingface-hub regex requests tqdm "
                    "packaging filelock",
    "fastapi": "pydantic starlette typing-extensions anyio",
    "vllm": "torch transformers numpy fastapi uvicorn pydantic psutil requests tqdm aiohttp zmq",
    "accelerate": "torch psutil numpy pyyaml packaging safetensors huggingface-hub",
    "sglang": "torch transformers numpy fastapi uvicorn pydantic psutil requests tqdm aiohttp zmq",
    "langchain": "pydantic sqlalchemy requests pyyaml numpy langchain-core",
    "uvicorn": "click h11", "openai": "httpx pydantic", "peft": "accelerate psutil safetensors",
}  # fmt: skip
"""A project → what it brings along, of what sources like these import."""


def key(name: str) -> str:
    """A name as the tables have it: HWLOC, hwloc>=2.0, libhwloc, PKG_CONFIG."""
    short = name.lower().partition(">")[0].partition("=")[0].strip()
    if short in LIBRARIES or short in FROM_PIP or short in ALWAYS:
        return short
    bare = short.removesuffix("_found").replace("_", "")
    return next((k for k in (bare, bare.removeprefix("lib")) if k in LIBRARIES), short)
