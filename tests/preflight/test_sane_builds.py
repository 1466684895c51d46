"""The build assistant on builds that are right, written in the many ways in which people write
them: none of them has a fault."""

from pathlib import Path

import pytest

from console.checks.preflight import Level
from console.checks.preflight.sources.assistant import BuildAsk, findings
from tests.preflight.build_tree import BLACKWELL
from tests.preflight.test_sources import faults

FILES = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "app"\n',
    "app/__init__.py": "",
    "app/main.py": "import app\n",
}
BASE = "FROM ubuntu:24.04\nRUN apt-get update && apt-get install -y python3-pip git g++ cmake\n"
CMD = 'CMD ["python3", "-m", "app.main"]\n'


def written(place: Path, dockerfile: str, files: dict[str, str]) -> BuildAsk:
    """A tree that is the context of its Dockerfile."""
    root = place / "app"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "Dockerfile").write_text(dockerfile)
    return BuildAsk(str(root), root / "Dockerfile", source=root)


def said(asked: BuildAsk, least: Level = Level.FAIL) -> list[str]:
    return [f"{one.title}: {one.words}" for one in faults(asked, least)]


INSTALLED = [
    "COPY . /src\nRUN pip install /src\n",
    'COPY . /src\nRUN pip install "/src[server]"\n',
    "COPY . /src\nRUN pip install -e /src\n",
    "WORKDIR /w\nCOPY . /src\nRUN pip install '/src'\n",
    "WORKDIR /w\nCOPY . /src/\nRUN pip install -v --no-deps /src/\n",
    "COPY . /src\nRUN pip install 'app @ file:///src'\n",
    "COPY . /src\nRUN cd /src && pip install .[server]\n",
    "COPY . /src\nRUN cd /src && mkdir -p x && pip install ./x .\n",
    "COPY . /src\nRUN pushd /src && pip install . && popd\n",
    "COPY pyproject.toml /x/\nCOPY app /x/app\nRUN pip install /x\n",
    "WORKDIR /x\nCOPY app app\n",
    "COPY app /usr/lib/python3/dist-packages/app\n",
]


@pytest.mark.parametrize("lines", INSTALLED)
def test_an_installation_from_the_tree_is_seen(tmp_path: Path, lines: str) -> None:
    assert said(written(tmp_path, BASE + lines + CMD, FILES), Level.WARN) == []


BUILDER = f"FROM ubuntu:24.04 AS builder\n{BASE.partition(chr(10))[2]}"
WHEELS = [
    f"{BUILDER}WORKDIR /s\nCOPY . .\nRUN pip wheel -w /w .\n{BASE}COPY --from=builder /w /w\n"
    "RUN pip install /w/*.whl\n",
    f"{BUILDER}WORKDIR /s\nCOPY . .\nRUN pip wheel --no-deps --wheel-dir=/w .\n{BASE}"
    "RUN --mount=type=bind,from=builder,source=/w,target=/w pip install /w/*.whl\n",
    f"{BUILDER}WORKDIR /s\nCOPY . .\nRUN uv build --wheel\n{BASE}COPY --from=0 /s/dist /d\n"
    "RUN pip install --no-index --find-links /d app\n",
    f"{BASE}WORKDIR /s\nCOPY . .\nRUN python3 setup.py bdist_wheel && pip install dist/*.whl\n",
    f"{BASE}WORKDIR /s\nCOPY . .\nRUN python3 -m build --wheel --outdir d\n"
    "RUN pip install ./d/app-1.0-py3-none-any.whl\n",
    f"{BASE}COPY . /s\nRUN python3 -m build /s && pip install /s/dist/app-1.0.tar.gz[x]\n",
    f"{BASE}RUN --mount=type=bind,target=/b pip install /b\n",
    f"{BASE}WORKDIR /b\nRUN --mount=source=.,dst=.,rw pip install .\n",
    f"{BUILDER}COPY . /s\n{BASE}COPY --from=builder /s /t\nRUN pip install /t\n",
    f"{BUILDER}COPY . /s/app\n{BASE}COPY --from=builder /s /t\nRUN cd /t/app && pip install .\n",
    f"{BUILDER}COPY . /s\nRUN /v/bin/pip install /s\n{BASE}COPY --from=builder /v /v\n",
    f"{BASE}WORKDIR /s\nCOPY . .\nRUN uv sync --frozen\n",
]


@pytest.mark.parametrize("text", WHEELS)
def test_wheels_and_mounts_install_too(tmp_path: Path, text: str) -> None:
    found = said(written(tmp_path, text + CMD, {**FILES, "setup.py": ""}), Level.WARN)
    assert found == []


def test_a_wheel_that_nothing_installs_is_named(tmp_path: Path) -> None:
    text = f"{BASE}COPY . /s\nRUN pip wheel -w /w /s\nRUN pip install torch==2.*\n{CMD}"
    (found,) = said(written(tmp_path, text, FILES))
    assert "nothing installs it from this tree" in found


def test_a_builder_is_judged_by_its_own_packages(tmp_path: Path) -> None:
    final = "FROM ubuntu:24.04\nCOPY --from=builder /src/build /app\n"
    text = f"{BUILDER}RUN apt-get install -y libtbb-dev\nCOPY . /src\nRUN cmake -S /src\n{final}"
    asked = written(tmp_path, text, TBB)
    assert said(asked, Level.WARN) == []
    (found,) = said(written(tmp_path, text.replace("libtbb-dev", "libfmt-dev"), TBB))
    assert "nothing installs libtbb-dev" in found


UNCLEAR = [
    "RUN ./install.sh\n", "RUN bash scripts/install.sh\n", "RUN make install\n",
    "RUN pip install git+https://github.com/me/app\n", "RUN curl -L x | tar xz -C /s\n",
    "RUN pip install $WHERE\n", "COPY --from=me/app:1 /v /v\n", "RUN pip install /w/app.whl\n",
]  # fmt: skip


@pytest.mark.parametrize("line", UNCLEAR)
def test_what_may_install_the_tree_is_no_fault(tmp_path: Path, line: str) -> None:
    assert said(written(tmp_path, f"{BASE}COPY . /src\n{line}{CMD}", FILES)) == []


def test_what_nothing_installs_is_still_named(tmp_path: Path) -> None:
    for line in ("", "RUN pip install /other\n", "RUN pip install app2\n"):
        (found,) = said(written(tmp_path, f"{BASE}COPY . /src\n{line}{CMD}", FILES))
        assert "nothing installs it from this tree" in found


SUBMODULES = {**FILES, ".gitmodules": '[submodule "x"]\n\tpath = x\n', "x/y": ""}
URL = "https://github.com/me/app.git /src"
CLONES = [
    (f"git clone --depth 1 --recursive {URL}", Level.WARN),
    (f"git clone --depth 1 {URL} && cd /src && git submodule update --init --depth 1", Level.WARN),
    (f"git clone {URL} && cd /src && git submodule update --init", None),
    (f"git clone --recurse-submodules --shallow-submodules --depth 1 {URL}", Level.WARN),
    (f"git clone --depth 1 {URL}", Level.FAIL),
]


@pytest.mark.parametrize(("line", "level"), CLONES)
def test_a_shallow_clone_alone_loses_no_submodule(
    tmp_path: Path, line: str, level: Level | None
) -> None:
    """git fetches submodules whole beside a --depth of the repository itself."""
    text = f"{BASE}RUN {line} && pip install /src\n{CMD}"
    asked = written(tmp_path, text, SUBMODULES)
    found = findings(BuildAsk(dockerfile=asked.dockerfile, source=asked.source), BLACKWELL)
    named = {one.level for one in found if "F-013" in one.lessons} & {Level.FAIL, Level.WARN}
    assert named == ({level} if level else set())


CURL = {
    "CMakeLists.txt": 'project(app CXX)\noption(USE_CURL "" ON)\nif(USE_CURL)\n'
    "find_package(CURL REQUIRED)\nendif()\nadd_executable(app main.cpp)\n",
}
CMAKE = [
    "cmake --preset nocurl -DUSE_CURL=OFF",
    "cmake -DUSE_CURL=OFF --log-level ERROR -Bbuild -S.",
    "cmake -B build -DUSE_CURL=OFF $UNKNOWN && cmake --build build",
    "cmake -B build $OPTS",
    "cmake -B build ${OPTS} .",
    "cmake -DUSE_CURL=OFF -B build && cmake -DUSE_CURL=OFF build",
    "cmake -DUSE_CURL=OFF -B build -G Ninja --install-prefix /opt/app",
]


@pytest.mark.parametrize("line", CMAKE)
def test_options_of_cmake_are_no_folder(tmp_path: Path, line: str) -> None:
    opts = 'ENV OPTS="-DUSE_CURL=OFF -DCMAKE_BUILD_TYPE=Release"\n'
    text = f"{BASE}WORKDIR /src\nCOPY . .\n{opts}RUN {line}\n"
    assert said(written(tmp_path, text, CURL), Level.WARN) == []
    (found,) = said(written(tmp_path, text.replace("=OFF", "=ON"), CURL), Level.WARN)
    assert "nothing installs libcurl4-openssl-dev" in found


SCIKIT = {
    **FILES,
    **CURL,
    "pyproject.toml": '[build-system]\nrequires = ["scikit-build-core"]\n'
    'build-backend = "scikit_build_core.build"\n[project]\nname = "app"\n',
}
OFF = [
    'ENV CMAKE_ARGS="-DUSE_CURL=OFF"\nRUN pip install .\n',
    'ENV SKBUILD_CMAKE_ARGS="-DX=1;-DUSE_CURL=OFF"\nRUN pip install .\n',
    'RUN CMAKE_ARGS="-G Ninja -DUSE_CURL=OFF" pip install .\n',
    "RUN pip install . -C cmake.args=-DUSE_CURL=OFF\n",
    "RUN pip install . --config-settings=cmake.define.USE_CURL=OFF\n",
]


@pytest.mark.parametrize("lines", OFF)
def test_definitions_reach_cmake_through_pip(tmp_path: Path, lines: str) -> None:
    text = f"{BASE}WORKDIR /src\nCOPY . .\n{lines}"
    assert said(written(tmp_path, text, SCIKIT), Level.WARN) == []
    (found,) = said(written(tmp_path, text.replace("USE_CURL", "USE_NONE"), SCIKIT))
    assert "nothing installs libcurl4-openssl-dev" in found


def test_definitions_of_the_project_itself_are_read(tmp_path: Path) -> None:
    text = f"{BASE}WORKDIR /src\nCOPY . .\nRUN pip install .\n"
    table = "[tool.scikit-build.cmake.define]\nUSE_CURL = false\n"
    files = {**SCIKIT, "pyproject.toml": SCIKIT["pyproject.toml"] + table}
    assert said(written(tmp_path, text, files), Level.WARN) == []
    setup = 'import subprocess\nsubprocess.run(["cmake", f"-DUSE_CURL={1 - 1}", "."])\n'
    assert said(written(tmp_path, text, {**FILES, **CURL, "setup.py": setup})) == []


PERHAPS = [
    ("cmake -C defaults.cmake -B build", CURL["CMakeLists.txt"]),
    ("cmake --preset nocurl", CURL["CMakeLists.txt"]),
    ("cmake -B build -DCMAKE_TOOLCHAIN_FILE=/vcpkg/vcpkg.cmake", CURL["CMakeLists.txt"]),
    ("cmake -B build -DCURL_ROOT=/opt", CURL["CMakeLists.txt"]),
    ("cmake -B .", "project(app)\nif(NOT FULL)\nreturn()\nendif()\nfind_package(CURL REQUIRED)\n"),
    ("cmake -B .", "project(app)\nreturn()\nfind_package(CURL REQUIRED)\n"),
]


@pytest.mark.parametrize(("line", "lists"), PERHAPS)
def test_what_cannot_be_told_of_cmake_is_no_fault(tmp_path: Path, line: str, lists: str) -> None:
    text = f"{BASE}WORKDIR /src\nCOPY . .\nRUN {line}\n"
    assert said(written(tmp_path, text, {"CMakeLists.txt": lists})) == []


TBB = {"CMakeLists.txt": "project(app)\nfind_package(TBB REQUIRED)\n"}
PACKAGES = [
    ("mamba install -y onetbb", Level.WARN),
    ("conda env create -f environment.yml", Level.WARN),
    ("micromamba install -y -n base -f env.yml", Level.WARN),
    ("apt-get build-dep -y app", Level.WARN),
    ("tar xzf onetbb-tbb.tgz -C /usr", Level.WARN),
    ("dpkg -i libtbb-dev_2021.deb", Level.WARN),
    ("apt-get install -y './libtbb-dev.deb'", Level.WARN),
    ("apt-get install -y 'libtbb*'", Level.WARN),
    ("apt-get install -y libtbb-dev/noble", None),
    ("apt-get install -y libtbb-dev:amd64=2021.11.0-2", None),
    ("apt-get install -y libfmt-dev/noble", Level.FAIL),
    ("conda info", Level.FAIL),
]


@pytest.mark.parametrize(("line", "level"), PACKAGES)
def test_packages_may_come_in_other_ways(tmp_path: Path, line: str, level: Level | None) -> None:
    text = f"{BASE}WORKDIR /src\nCOPY . .\nRUN {line}\nRUN cmake -B build\n"
    found = [one.level for one in faults(written(tmp_path, text, TBB), Level.WARN)
             if one.title == "package TBB"]  # fmt: skip
    assert found == ([level] if level else [])


def test_scikit_build_core_brings_cmake(tmp_path: Path) -> None:
    base = "FROM ubuntu:24.04\nRUN apt-get update && apt-get install -y python3-pip g++\n"
    files = {**SCIKIT, "CMakeLists.txt": "project(app)\n"}
    text = f"{base}WORKDIR /src\nCOPY . .\nRUN pip install .\n"
    assert said(written(tmp_path, text, files), Level.WARN) == []
    alone = text.replace("pip install", "pip install --no-build-isolation")
    assert len(said(written(tmp_path, alone, files))) == 1


def test_a_return_of_a_function_ends_no_file(tmp_path: Path) -> None:
    lists = "function(x)\nreturn()\nendfunction()\nfind_package(CURL REQUIRED)\n"
    text = f"{BASE}WORKDIR /src\nCOPY . .\nRUN cmake -B build\n"
    assert len(said(written(tmp_path, text, {"CMakeLists.txt": lists}))) == 1


def test_two_builds_of_one_tree_have_each_fault_once(tmp_path: Path) -> None:
    lists = CURL["CMakeLists.txt"] + TBB["CMakeLists.txt"]
    base = BASE.replace(" cmake", "")
    text = f"{base}WORKDIR /src\nCOPY . .\nRUN cmake --preset x && cmake -B b\nRUN cmake -B c\n"
    found = faults(written(tmp_path, text, {"CMakeLists.txt": lists}), Level.WARN)
    named = sorted((one.title, one.level) for one in found)
    wanted = [(name, Level.FAIL) for name in ("cmake", "package CURL", "package TBB")]
    assert named == wanted


def test_a_builder_has_one_pytorch_too(tmp_path: Path) -> None:
    setup = {"setup.py": "from setuptools import setup\nsetup()\n"}
    text = (f"{BUILDER}RUN pip install torch==2.9.1\nCOPY . /s\n"
            "RUN pip install --no-build-isolation /s && pip install torch==2.7.0\n"
            f"{BASE}COPY --from=builder /usr /usr\n{CMD}")  # fmt: skip
    (found,) = said(written(tmp_path, text, {**FILES, **setup}))
    assert "PyTorch 2.7.0 replaces PyTorch 2.9.1" in found


@pytest.mark.parametrize("pin", ["torch==2.7.0", "torch == 2.7.0 ; python_version > '3.8'"])
def test_a_list_of_requirements_may_replace_pytorch(tmp_path: Path, pin: str) -> None:
    files = {**FILES, "setup.py": "from setuptools import setup\nsetup()\n",
             "deps/run.txt": f"numpy\n{pin}  # pinned\n"}  # fmt: skip
    text = (f"{BASE}RUN pip install torch==2.9.1\nWORKDIR /s\nCOPY . .\n"
            "RUN pip install --no-build-isolation .\n"
            f"RUN pip install -r deps/run.txt\n{CMD}")  # fmt: skip
    (found,) = said(written(tmp_path, text, files))
    assert "PyTorch 2.7.0 replaces PyTorch 2.9.1 (line 3), against which" in found
    for fine in ("torch==2.9.1", "torch>=2.0", "torchaudio==2.7.0"):
        more = {**files, "deps/run.txt": f"{fine}\n"}
        assert said(written(tmp_path, text, more), Level.WARN) == []


@pytest.mark.parametrize("again", ["torch", "torch==2.9.1", "torch>=2.4"])
def test_a_pytorch_that_fits_is_not_replaced(tmp_path: Path, again: str) -> None:
    index = "--index-url https://download.pytorch.org/whl/cu128"
    text = (f"{BASE}RUN pip install torch==2.9.1 {index}\nCOPY . /s\n"
            "RUN pip install --no-build-isolation /s\n"
            f"RUN pip install '{again}' numpy\n{CMD}")  # fmt: skip
    assert said(written(tmp_path, text, FILES), Level.WARN) == []


GATED = {
    **FILES,
    "setup.py": "import os\nfrom setuptools import Extension, setup\nparts = []\n"
    'if os.environ.get("USE_BALANCE", "0") == "1":\n'
    '    parts.append(Extension("app.balance", ["balance.c"]))\nsetup(ext_modules=parts)\n',
    "app/main.py": "from app import balance\n",
}


def test_an_extension_inside_a_package_needs_its_switch(tmp_path: Path) -> None:
    text = f"{BASE}COPY . /s\nRUN pip install /s\n{CMD}"
    (found,) = said(written(tmp_path, text, GATED))
    assert "import balance: " in found
    assert "built only with USE_BALANCE=1 (setup.py, line 4)" in found
    on = text.replace("COPY", "ENV USE_BALANCE=1\nCOPY")
    assert said(written(tmp_path, on, GATED)) == []
    for own in ("balance = None\n", "def balance(): ...\n", "from .x import *\n"):
        assert said(written(tmp_path, text, {**GATED, "app/__init__.py": own})) == []


CMAKES = [
    "RUN curl -L https://x/cmake-3.30-linux-x86_64.tar.gz | tar xz -C /usr/local\n",
    "RUN pipx install cmake\n", "ADD https://x/cmake.tgz /opt/\n",
    "RUN wget https://x/cmake-3.30.sh && sh cmake-3.30.sh --skip-license\n",
]  # fmt: skip


@pytest.mark.parametrize("line", CMAKES)
def test_cmake_may_come_without_a_package(tmp_path: Path, line: str) -> None:
    text = f"FROM ubuntu:24.04\n{line}COPY . /s\nRUN cmake -S /s -B /b\n"
    assert said(written(tmp_path, text, {"CMakeLists.txt": "project(a)\n"})) == []


def test_packages_bring_those_they_depend_on(tmp_path: Path) -> None:
    lists = "find_package(PkgConfig REQUIRED)\npkg_check_modules(HWLOC REQUIRED hwloc)\n"
    text = f"{BASE}RUN apt-get install -y pkg-config libopenmpi-dev\nCOPY . /s\nRUN cmake -S /s\n"
    assert said(written(tmp_path, text, {"CMakeLists.txt": lists}), Level.WARN) == []


def test_sources_may_come_in_other_ways_than_a_clone(tmp_path: Path) -> None:
    for line in ("git init /s && cd /s && git fetch x && pip install .", "curl x | tar xz"):
        asked = written(tmp_path, f"{BASE}RUN {line}\n{CMD}", FILES)
        assert said(BuildAsk(dockerfile=asked.dockerfile, source=asked.source)) == []


def test_a_part_inside_a_submodule_comes_with_the_clone(tmp_path: Path) -> None:
    asked = written(tmp_path, f"{BASE}RUN git clone --recursive {URL}\n"
                    f"RUN pip install /src /src/x/python\n{CMD}", SUBMODULES)  # fmt: skip
    assert said(BuildAsk(dockerfile=asked.dockerfile, source=asked.source), Level.WARN) == []
