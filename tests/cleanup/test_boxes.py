"""Containers and images on a real engine: the console's marks decide, and nothing is forced."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import UsageError
from console.config.playbook.steps import Build, Step
from console.config.site.site import Site, load_site
from console.render.effects import build_argv
from console.runner.cleanup.clean import remove, survey
from console.runner.cleanup.foreign import foreign
from console.runner.cleanup.leftover import Leftover
from console.runtime.spec import ROLE_LABEL, RUN_LABEL, SERVICE_LABEL
from tests.cleanup.conftest import Attic
from tests.testbed.engine import Engine

pytestmark = pytest.mark.engine
SLEEP = ("sh", "-c", "sleep 600")


@dataclass
class Yard:
    """One test's containers and images, by a label and a tag of its own."""

    engine: Engine
    image: str
    root: Path
    scope: str

    def site(self, **more: Any) -> Site:
        base = {"container": f"{self.scope}-base", "url": "http://127.0.0.1:1"}
        file = self.root / "site.yaml"
        file.write_text(json.dumps(
            {"schema": "omni.site/v1", "name": "yard", "baseline": base,
             "engine": {"host": self.engine.host}, **more}
        ))  # fmt: skip
        return load_site(file)

    def box(
        self, name: str, *, role: str = "candidate", verb: str = "create", image: str = ""
    ) -> str:
        labels = (
            [f"{ROLE_LABEL}={role}", f"{SERVICE_LABEL}=cand", f"{RUN_LABEL}=r1"] if role else []
        )
        words = [w for one in (f"omni.test={self.scope}", *labels) for w in ("--label", one)]
        detach = ["-d"] if verb == "run" else []
        return self.engine.run(
            verb, *detach, "--name", f"{self.scope}-{name}", *words, image or self.image, *SLEEP
        ).strip()

    def build(self, tag: str, base: str = "", layer: bytes = b"") -> str:
        """By the very argv of a build step, with one layer more if given; the image's id."""
        folder = self.root / tag
        folder.mkdir(exist_ok=True)
        body = f"FROM {base or self.image}\nENV MARK={uuid.uuid4().hex}\n"
        if layer:
            (folder / "layer").write_bytes(layer)
            body += "COPY layer /layer\n"
        (folder / "Dockerfile").write_text(body)
        name = f"{self.scope}-{tag}:1"
        step = Step(id="b", build=Build(context=str(folder), tag=name))
        argv = [word for word in build_argv(step)[1:] if not word.startswith("--progress")]
        self.engine.run(*argv)  # the testbed's builder knows no --progress
        return self.engine.run("image", "inspect", "-f", "{{.Id}}", name).strip()

    def found(self, site: Site) -> dict[str, Leftover]:
        """This test's own, by id on the engine."""
        every = survey(site)
        assert every.notes == ()
        mine = self.engine.run(
            "ps", "-aq", "--no-trunc", "--filter", f"label=omni.test={self.scope}"
        )
        names = set(mine.split())
        return {i.where: i for i in every.items
                if i.where in names or self.scope in i.what}  # fmt: skip

    def there(self, name: str) -> bool:
        return name in self.engine.run("ps", "-aq", "--no-trunc").split()


@pytest.fixture
def yard(attic: Attic, engine: Engine, busy_image: str) -> Iterator[Yard]:
    made = Yard(engine, busy_image, attic.root, f"yard-{uuid.uuid4().hex[:8]}")
    made.box("base", role="", verb="run")
    yield made
    mine = engine.run("ps", "-aq", "--filter", f"label=omni.test={made.scope}").split()
    engine.run("rm", "-f", "-v", *mine)
    tags = engine.run("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    for tag in tags:
        if made.scope in tag:
            engine.run("rmi", "-f", tag)


def go(site: Site, *items: Leftover) -> list[str]:
    return [one.error for one in remove(site, [item.id for item in items])]


def test_stopped_candidates_go_and_everybody_elses_stay(yard: Yard) -> None:
    old, once = yard.box("old"), yard.box("once", role="oneoff")
    aside = yard.box("old.1a2b3c-1")
    foreign, up = yard.box("foreign", role=""), yard.box("up", verb="run")
    kept = yard.box("kept")
    site = yard.site(protected=[f"{yard.scope}-kept"])
    found = yard.found(site)
    assert set(found) == {old, once, aside, up, kept}
    assert "renamed aside" in found[aside].what
    assert "running" in found[up].stays
    assert "protected" in found[kept].stays
    with pytest.raises(UsageError):
        go(site, found[old], found[up])
    assert yard.there(old)
    assert go(site, found[old], found[once], found[aside]) == ["", "", ""]
    assert not [one for one in (old, once, aside) if yard.there(one)]
    assert [one for one in (foreign, up, kept) if not yard.there(one)] == []


def test_a_container_that_was_started_meanwhile_is_refused_by_the_engine(yard: Yard) -> None:
    name = yard.box("old")
    site = yard.site()
    item = yard.found(site)[name]
    yard.engine.run("start", name)
    assert item.remove is not None
    with pytest.raises(Exception, match=r"(?i)running"):
        item.remove()
    assert yard.there(name)


def test_the_baseline_stays_whatever_its_labels_say(yard: Yard) -> None:
    yard.engine.run("rm", "-f", f"{yard.scope}-base")
    base = yard.box("base")
    site = yard.site()
    item = yard.found(site)[base]
    assert "protected" in item.stays
    with pytest.raises(UsageError):
        go(site, item)


def test_images_of_build_steps_go_those_made_from_them_stay(yard: Yard) -> None:
    built = yard.build("ik")
    child_file = yard.root / "child"
    child_file.mkdir()
    (child_file / "Dockerfile").write_text(f"FROM {yard.scope}-ik:1\nENV A=b\n")
    yard.engine.run("build", "-q", "-t", f"{yard.scope}-own:1", str(child_file))
    site = yard.site()
    images = {i.what.split(";")[0]: i for i in yard.found(site).values() if i.kind == "image"}
    assert "build step" in images[f"{yard.scope}-own:1"].stays
    item = images[f"{yard.scope}-ik:1"]
    assert (item.where, item.stays) == (built, "")
    assert item.bytes == 0, "its one layer is its child's and its base's too"


def test_a_layer_that_images_share_is_counted_once(yard: Yard) -> None:
    layer = yard.build("layer", layer=b"w" * 3_000_000)
    twins = [yard.build(tag, base=f"{yard.scope}-layer:1") for tag in ("a", "b")]
    site = yard.site()
    found = yard.found(site)
    assert all((found[one].bytes or 0) < 1_000_000 for one in (layer, *twins)), "alone"
    assert "other images" in found[layer].what
    free, exact = survey(site).freed(list(found.values()))
    assert exact
    assert 3_000_000 <= free < 4_000_000, "and busybox, which is below, stays"
    done = list(remove(site, [found[one].id for one in (*twins, layer)]))
    assert [one.error for one in done] == ["", "", ""]
    assert sum(one.freed or 0 for one in done) == free, "as it was told"


def test_an_image_goes_with_the_container_that_is_made_of_it(yard: Yard) -> None:
    built = yard.build("ik")
    box = yard.box("old", image=f"{yard.scope}-ik:1")
    site = yard.site()
    found = yard.found(site)
    assert f"c-{box[:12]}" in found[built].stays
    with pytest.raises(UsageError):
        go(site, found[built])
    assert go(site, found[built], found[box]) == ["", ""], "containers first, whatever the order"
    assert yard.found(site) == {}


def test_an_image_that_the_site_names_stays(yard: Yard) -> None:
    built = yard.build("ik")
    service = {"container": {"image": f"{yard.scope}-ik:1"}, "url": "http://127.0.0.1:2"}
    site = yard.site(services={"ik": service})
    assert "site" in yard.found(site)[built].stays


def test_what_others_made_is_told_and_stays(yard: Yard) -> None:
    """A stopped container without the console's marks, and the image that it was made of."""
    box = yard.box("theirs", role="")
    site = yard.site()
    items, notes = foreign(site, survey(site))
    (item,) = [one for one in items if one.where == box]
    assert (item.kind, item.how) == ("container", f"docker rm {yard.scope}-theirs")
    assert any(one.kind == "image" and f"{yard.scope}-theirs" in one.used for one in items)
    assert not any("not all of the engine" in note for note in notes)
    assert yard.there(box)
