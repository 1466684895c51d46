"""Our sums for architectures whose tensors were learned from the loader, against its own figures.

No cell may be below the loader: what it takes more than we say is a GO that it refuses.
"""

import pytest

from console.checks.preflight.architecture import memory
from console.checks.preflight.architecture.memory import Reserved
from console.checks.preflight.architecture.on_host import HostProgram
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.placement import place
from tests.testbed.cache import Unavailable
from tests.testbed.fit_params import ensure_fit_params
from tests.testbed.loader_tables import LATENT, MIXTURE, Table, grown, learn, start
from tests.testbed.plugin import lacking

MIB = 1 << 20
SLACK = 2 * MIB
"""What rounding of the loader's own rows to whole MiB may hide."""
CELLS = (
    "-c 4096 -np 1", "-c 32768 -np 4", "-c 32768 -np 1 -ctk q8_0 -ctv q8_0",
    "-c 32768 -np 1 -fa off", "-c 32768 -np 1 -ub 2048 -b 2048",
)  # fmt: skip
LEARNED = (
    "gpt2", "gptneox", "gemma2", "internlm2", "baichuan", "stablelm", "bloom", "phi2", "minicpm",
    "plamo", "deci", "starcoder", "gemma3n", "qwen3vl", "mamba2", "jamba", "cohere2", "chatglm",
    "nemotron", "exaone", "arctic", "dbrx", "qwen3", "qwen3moe", "gemma3", "glm4moe", "llama4",
    "command-r", "granitehybrid", "nemotron_h", "phimoe", "plamo2", "bitnet", "exaone4", "olmo",
    "neo-bert", "deepseek2", "deepseek32", "mistral4", "dream", "llada", "arcee", "afmoe",
    "qwen35", "qwen35moe", "qwen3next", "bert", "nomic-bert", "nomic-bert-moe",
)  # fmt: skip


def below(table: Table) -> list[str]:
    """The cells where the loader takes more than our sum, and it is not UNKNOWN."""
    tool = ensure_fit_params()
    header = table.header()
    facts = from_gguf(header)
    found = []
    for cell in () if facts.missing else CELLS:
        said = memory.ask(HostProgram((tool,)), tool, header, llama_plan(cell.split()))
        placed = place(facts, llama_plan([*cell.split(), "-ngl", "0"]), ())
        if not isinstance(said, Reserved) or placed.refused or placed.doubts:
            continue
        host = placed.host
        ours = (host.weights, host.cache, host.weights + host.cache + host.compute)
        theirs = (said.model, said.context, said.model + said.context + said.compute)
        if any(one + SLACK < other for one, other in zip(ours, theirs, strict=True)):
            pairs = zip(ours, theirs, strict=True)
            shown = [f"{one // MIB} for {other // MIB}" for one, other in pairs]
            found.append(f"{table.architecture} {cell}: {', '.join(shown)}")
    return found


def test_a_table_grows_by_what_a_loader_misses_until_nothing_helps() -> None:
    told = [
        "key not found in model: x.expert_count", "tensor 'blk.0.attn_norm.weight' not found",
        "tensor 'blk.0.attn_norm.weight' has wrong shape; expected  1024, got  1, 1, 1", "",
    ]  # fmt: skip
    for last, whole in (("", True), ("the program ended", False)):
        said = iter([*told[:-1], last])
        table = grown(start("x", {}), lambda header, path, said=said: next(said))
        assert (table.whole, table.why) == (whole, last)
        assert table.kv["x.expert_count"] == 8
        assert table.dims["blk.0.attn_norm.weight"] == (1024,)


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.parametrize("architecture", LEARNED)
def test_no_cell_is_below_the_loader(architecture: str) -> None:
    try:
        tables = [learn(architecture, more) for more in ({}, MIXTURE)]
        if not any(table.whole for table in tables):
            tables.append(learn(architecture, LATENT))
    except Unavailable as error:
        lacking(error.reason)
    whole = [table for table in tables if table.whole]
    assert whole, [table.why for table in tables]
    assert [cell for table in whole for cell in below(table)] == []
