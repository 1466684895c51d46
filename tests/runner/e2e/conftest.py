"""Models written once, and a world of its own for each test."""

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.e2e.boxes import LABEL, Boxes, boxes
from tests.runner.e2e.sites import host_site
from tests.runner.e2e.world import World
from tests.testbed.door import door
from tests.testbed.engine import Engine
from tests.testbed.models import tiny_deepseek2, tiny_llama, unknown_architecture

HERE = Path(__file__).parent
ONE_OF_EACH_KIND = {
    "test_go_measures_the_exclusive_candidate_and_restores_the_baseline",  # whole run, real engines
    "test_a_whole_run_in_containers[docker]",
    "test_a_candidate_of_the_same_file_leaves_the_baseline_its_container",  # compose
    "test_rollback_during_a_benchmark",  # a rollback by the warm ladder,
    "test_with_the_warm_ladder_gone",  # by the command alone,
    "test_the_sealed_script_alone_under_dash[False]",  # and by the script
    "test_a_load_past_its_limit_is_killed_and_the_baseline_serves",  # the sentinel kills
    "test_the_demo_shows_progress_decides_reports_and_leaves_nothing_behind",
}


@pytest.hookimpl(tryfirst=True)  # before the plugin puts what is alone on one worker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` runs one test of each kind, alone on one worker, `make test-all` all."""
    for item in items:
        if item.path.parent == HERE:
            chosen = item.name in {*ONE_OF_EACH_KIND, "test_make_test_has_one_of_each_kind"}
            item.add_marker(pytest.mark.alone if chosen else pytest.mark.full)


@pytest.fixture(scope="session")
def models() -> Iterator[Path]:
    """A directory of models, where an engine of another user may read it too."""
    with tempfile.TemporaryDirectory(prefix="omni-models-") as made:
        directory = Path(made)
        directory.chmod(0o755)
        tiny_llama(directory / "tiny.gguf")
        tiny_deepseek2(directory / "deepseek2.gguf")
        unknown_architecture(directory / "unknown.gguf")
        yield directory


@pytest.fixture
def bare(tmp_path: Path, models: Path) -> Iterator[World]:
    """A world whose baseline does not run."""
    world = World(tmp_path, models / "tiny.gguf")
    world.site.write_text(host_site(world))
    yield world
    world.close()


@pytest.fixture
def world(bare: World) -> World:
    """A world whose baseline, a llama.cpp process, serves."""
    bare.bring_up()
    return bare


@pytest.fixture
def boxed(tmp_path: Path, models: Path, engine: Engine, llama_image: str) -> Iterator[Boxes]:
    """A world of containers, none of which runs yet; its engine is behind a door of its own."""
    world = World(tmp_path, models / "tiny.gguf")
    scope = uuid.uuid4().hex[:10]
    with tempfile.TemporaryDirectory() as short:
        path = Path(short) / "engine.sock"
        with door(path, engine.socket, (LABEL, scope)) as socket:
            yield from boxes(world, engine, llama_image, f"unix://{socket}", scope)


@pytest.fixture
def box(boxed: Boxes) -> Boxes:
    """The baseline, a deepseek2 in a container, serves."""
    boxed.world.site.write_text(boxed.site(container=boxed.base_name))
    boxed.baseline()
    return boxed
