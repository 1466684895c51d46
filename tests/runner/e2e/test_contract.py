"""A contract step on real engines: the same model as today's is let through, one whose chat
template is another is not, and the baseline is asked once."""

import json

import pytest

from tests.runner.e2e.boxes import Boxes
from tests.runner.e2e.sites import UP, book
from tests.runner.e2e.world import World

BARE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
STEPS = (
    UP, "id: like, contract: {service: cand}",
    "id: same, gate: [{metric: like.changed, go: '== 0'}], on_no_go: rollback",
)  # fmt: skip


def test_another_chat_template_is_named_and_not_let_through(world: World) -> None:
    playbook = world.write("b.yaml", book(*STEPS))
    done = world.go(playbook)
    assert (done.code, done.json.get("decision")) == (0, "go"), done
    assert world.at("like").detail.startswith("same tools, ")
    assert "47 cases asked" in world.at("baseline:contract").detail
    site = json.loads(world.site.read_text())
    site["services"]["cand"]["process"]["argv"] += ["--chat-template", BARE]
    world.site.write_text(json.dumps(site))
    done = world.go(playbook)
    assert (done.code, done.json["state"]) == (6, "rolled_back"), done
    assert "nothing asked" in world.at("baseline:contract").detail
    assert "chat template of props" in world.at("like").detail
    assert "| `props` | chat template | " in world.run.report.read_text()
    assert world.serves()


@pytest.mark.engine
def test_a_container_without_jinja_drops_the_tools_and_is_not_let_through(box: Boxes) -> None:
    site = json.loads(box.world.site.read_text())
    site["services"]["cand"] = box.candidate("deepseek2.gguf")
    box.world.site.write_text(json.dumps(site))
    playbook = box.world.write("b.yaml", book(*STEPS))
    done = box.world.go(playbook)
    assert (done.code, done.json.get("decision")) == (0, "go"), done
    assert "47 cases asked" in box.world.at("baseline:contract").detail
    site["services"]["cand"]["container"]["command"].append("--no-jinja")
    box.world.site.write_text(json.dumps(site))
    done = box.world.go(playbook)
    assert (done.code, done.json["state"]) == (6, "rolled_back"), done
    assert "nothing asked" in box.world.at("baseline:contract").detail, "the same image and argv"
    assert box.world.at("like").detail.startswith("tools dropped; ")
    assert box.world.serves()
