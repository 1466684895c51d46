"""config.json and the safetensors index of a repository at its commit, and how weights are stored.

Both are fetched at the pinned commit, bounded in bytes, depth and time; only config.json tells how
weights are stored.
"""

from __future__ import annotations

import codecs
import json
import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from console.common.errors import EngineTimeout
from console.common.text import decode, one_line
from console.common.units import both_units, format_duration
from console.host.children import within
from console.models.hub import errors, settings
from console.models.hub.errors import FileMissing, HubAnswer, HubTimeout, HubUnreachable
from console.models.hub.listing import Listing
from console.models.hub.reference import BadReference, check_path
from console.models.safetensors.names import Shard, by_shard

if TYPE_CHECKING:
    import ssl

    import httpx

_QUANTIZATION_KINDS = (
    ("block", "block_int8"), ("float-quantized", "fp8"), ("int-quantized", "int8"),
    ("pack-quantized", "w4a16"), ("naive-quantized", "compressed-tensors"),
    ("auto-round, 4 bits", "auto-round"), ("auto-round, 8 bits", "auto-round"),
    ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"),
    ("w4a8", "w4a8"), ("fp8", "fp8"), ("awq", "awq"), ("gptq", "gptq"), ("int8", "int8"),
    ("bfloat16", "bf16"), ("bf16", "bf16"), ("float16", "fp16"), ("fp16", "fp16"),
)  # fmt: skip
"""Words of a description, and the name that engines' documentation uses for them."""

CONFIG = "config.json"
QUANTIZATION = "hf_quant_config.json"
"""Where ModelOpt writes how weights are stored, beside a config.json that does not say it."""
INNER = ("text_config", "llm_config", "language_config", "thinker_config", "llm")
"""Keys under which a model of several parts has the configuration of its language model."""
QUANTIZED = ("quantization_config", "compression_config")
"""Keys under which a configuration says how its weights are quantized."""
INDEX = "model.safetensors.index.json"
CONFIG_LIMIT = 4 << 20
INDEX_LIMIT = 64 << 20
MAX_VALUES = 2_000_000
"""In one document: Python needs 60 bytes or more per value. An index has one per tensor."""
SILENCE_S, SLOW_BYTES = 10.0, 4 * 1024
"""A server that sends fewer bytes than these in that time is given up."""
_STORES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_REDIRECTS = 5
_KINDS = {
    "GatedRepo": "GatedRepoError",
    "RepoNotFound": "RepositoryNotFoundError",
    "RevisionNotFound": "RevisionNotFoundError",
    "EntryNotFound": "RemoteEntryNotFoundError",
}


def parts(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A configuration, and in it those of the language model, the outermost first."""
    configs: list[Mapping[str, Any]] = [config]
    for key in INNER:
        inner = config.get(key)
        if isinstance(inner, Mapping) and len(configs) <= len(INNER):
            configs += parts({name: inner[name] for name in inner if name not in INNER[3:]})
    return configs


def whole(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as its language model reads it: what an inner part says counts."""
    return {name: value for part in parts(config) for name, value in part.items()}


def quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the weights are quantized, wherever it stands; {} if nothing says it."""
    for part in parts(config):
        for key in QUANTIZED:
            how = part.get(key)
            if isinstance(how, Mapping) and how:
                return how
            if isinstance(how, str) and how.strip():
                return {"quant_method": how}  # no engine's form: its word is all that is known
    return {}


def keeps_fp8(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The engines that keep the cache in FP8 because the quantization wants it: ModelOpt's, which
    vLLM takes unless it is dynamic (`get_kv_cache_quant_algo_string` in utils/torch_utils.py), and
    that of compressed-tensors, which vLLM alone follows (layers/attention/attention.py)."""
    how = quantization(config)
    inner = how.get("quantization")
    how = {**how, **inner} if isinstance(inner, Mapping) else how
    method, scheme = _word(how.get("quant_method")), how.get("kv_cache_scheme")
    if method == "compressed-tensors":
        return ("vllm",) if isinstance(scheme, Mapping) and scheme else ()
    if not (method.startswith("modelopt") or how.get("quant_algo")):
        return ()
    if isinstance(scheme, Mapping) and scheme:
        eight = scheme.get("num_bits") == 8 and scheme.get("type") == "float"
        fixed = ("vllm",) if scheme.get("dynamic") is False else ()
        return ("sglang", *fixed) if eight else ()
    wanted = _word(how.get("kv_cache_quant_algo")).upper() == "FP8"
    return ("sglang", "vllm") if wanted else ()


def describe(config: Mapping[str, Any]) -> str:
    """`blockwise_int8, blocks of 128x128`, `fp8 (e4m3)`, or the dtype; "" if it says nothing."""
    how = quantization(config)
    return _scheme(how) if how else dtype_of(config)


def dtype_of(config: Mapping[str, Any]) -> str:
    """What a model computes in where nothing else is asked for; "" where nothing says it."""
    for part in parts(config):
        word = _word(part.get("dtype")) or _word(part.get("torch_dtype"))
        if word:
            return word.removeprefix("torch.")
    return ""


def kind(description: str) -> str:
    """The short name of a description or a name: `fp8 (e4m3)` → `fp8`; unknown ones unchanged.

    `float32` stays itself. Blocks of int8 have a name of their own: other kernels.
    """
    low = description.lower()
    for sign, name in _QUANTIZATION_KINDS:
        if sign == "block" and not ("int8" in low and low.startswith("block")):
            continue
        if sign in low:
            return name
    return low


def _scheme(how: Mapping[str, Any]) -> str:
    words = [_word(how.get("quant_method")) or _word(how.get("quant_algo")) or "quantized"]
    if kind := _word(how.get("fmt")) or _word(how.get("format")) or _within(words[0], how):
        words[0] += f" ({kind})"
    bits = how.get("bits") or how.get("w_bit")
    if isinstance(bits, int | float) and not isinstance(bits, bool) and 0 < bits <= 32:
        words.append(f"{bits:g} bits")
    for flag, text in (("load_in_8bit", "8 bits"), ("load_in_4bit", "4 bits")):
        if how.get(flag) is True:
            words.append(text)
    block = how.get("weight_block_size")
    if isinstance(block, list) and block and all(isinstance(n, int) and 0 < n < 1e6 for n in block):
        words.append("blocks of " + "x".join(str(n) for n in block[:3]))
    elif isinstance(group := how.get("group_size"), int) and 0 < group < 1e6:
        words.append(f"groups of {group}")
    return ", ".join(words)


def _within(method: str, how: Mapping[str, Any]) -> str:
    """What a method that has several formats stores; "" where it is its usual one, or the others
    are not known to have kernels: AutoRound's are integers that are packed as GPTQ packs them."""
    if method.startswith("modelopt"):
        algorithm = _word(how.get("quant_algo")).upper()
        return algorithm if algorithm in ("NVFP4", "FP8") else ""
    if method != "auto-round":
        return ""
    usual = {"data_type": "int", "packing_format": "gptq"}
    other = [
        f"another {key}" for key, word in usual.items()
        if how.get(key) is not None and word not in _word(how[key])
    ]  # fmt: skip
    return " ".join(["asymmetric", *other] if how.get("sym") is False else other)


def _word(value: object) -> str:
    return one_line(value, 40) if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Index:
    """A safetensors index: the files it names, the tensor bytes it claims (not trusted), and which
    tensors it puts into each file."""

    files: frozenset[str]
    total_size: int | None = None
    shards: Mapping[str, Shard] = field(default_factory=dict, compare=False)


def fetch_config(listing: Listing) -> dict[str, Any] | None:
    """config.json at the pinned commit, with what hf_quant_config.json adds to it; None if the
    repository has none. Raises HubError."""
    if listing.find(CONFIG) is None:
        return None
    config = fetch_json(listing, CONFIG)
    if listing.find(QUANTIZATION) is None or quantization(config):
        return config
    return with_quantization(config, fetch_json(listing, QUANTIZATION))


def with_quantization(config: dict[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with the quantization that hf_quant_config.json holds; pure."""
    how = beside.get("quantization")
    return {**config, QUANTIZED[0]: how} if isinstance(how, Mapping) and how else config


def fetch_index(listing: Listing) -> Index | None:
    """The safetensors index at the pinned commit; None if there is none. Raises HubError."""
    if listing.find(INDEX) is None:
        return None
    return read_index(fetch_json(listing, INDEX, limit=INDEX_LIMIT, deadline_s=60.0))


def read_index(document: Mapping[str, Any]) -> Index:
    """The index in a document; pure. Raises HubAnswer if it is not an index."""
    named = document.get("weight_map")
    places = named if isinstance(named, dict) else {}
    if set(map(type, places.values())) - {str}:
        places = {name: file for name, file in places.items() if isinstance(file, str)}
    shards = by_shard(places)
    if not shards:
        raise HubAnswer(f"{INDEX} names no files", "", "use the sizes of the files instead")
    try:
        files = frozenset(check_path(name) for name in shards)
    except BadReference as error:
        hint = "such a repository is broken or hostile: do not download it"
        raise HubAnswer(f"{INDEX} names a file that is no path", error.detail, hint) from None
    about = document.get("metadata")
    total = about.get("total_size") if isinstance(about, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or not 0 < total < 2**62:
        return Index(files, None, shards)
    return Index(files, int(total), shards)


def fetch_json(
    listing: Listing, path: str, *, limit: int = CONFIG_LIMIT, deadline_s: float = 20.0
) -> dict[str, Any]:
    """A JSON object of at most `limit` bytes. Raises HubError; the whole fetch has one deadline,
    and ends before it when nothing of use comes.

    Only the hub itself gets the token: it is not sent on a redirect to another host.
    """
    import httpx

    file, secret = listing.find(path), settings.token()
    request = errors.HubRequest(listing.repo, listing.commit, listing.endpoint, bool(secret))
    if file is None:
        raise FileMissing(f"{listing.repo} has no {one_line(path, 80)}", "", request.page)
    if file.size is not None and file.size > limit:
        raise _too_large(path, limit, f"{both_units(file.size)} by the listing")
    headers = {"Accept-Encoding": "identity", "User-Agent": "omni-console"}
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    pace = _Pace()
    with httpx.Client(
        headers=headers, timeout=deadline_s, follow_redirects=True, max_redirects=_REDIRECTS,
        verify=_trust(*map(os.environ.get, _STORES)),
    ) as client:  # fmt: skip
        try:
            url = listing.url(path)
            body = within(
                deadline_s,
                request.host,
                lambda: _body(client, request, url, path, limit, pace),
                patience=lambda: pace.left_s,
            )
        except (
            EngineTimeout,
            httpx.TimeoutException,
        ):  # leaving closes the client, which ends the call that was left behind
            when = format_duration(deadline_s)
            words = f"{path} did not arrive within {when}"
            if pace.left_s <= 0:
                words = f"{path} does not come: {pace.have} bytes in {SILENCE_S:g} s"
            hint = "try again; a slow mirror may need another HF_ENDPOINT"
            raise HubTimeout(words, request.host, hint) from None
        except httpx.TooManyRedirects:
            raise HubAnswer(f"{request.host} redirects for ever", path, errors.ENDPOINT) from None
        except httpx.TransportError as error:
            raise errors.unreachable(request, one_line(str(error))) from None
        except httpx.HTTPError as error:
            raise HubUnreachable(f"{path} cannot be fetched", one_line(str(error)), "") from None
    return parse(path, body)


def parse(path: str, body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises HubAnswer.

    `Infinity` and `NaN` are no JSON, but Python writes and reads them, and so do models (the
    `time_step_limit` of Nemotron-H): they become their own names, which are no number to anybody.
    """
    if not body.strip():
        raise HubAnswer(f"{path} is empty", "", _AGAIN)
    if body.lstrip().startswith(b"version https://git-lfs"):
        hint = "the repository was uploaded without its large files"
        raise HubAnswer(f"{path} is a pointer, not the file", "", hint)
    if body.lstrip().startswith(b"<"):
        raise HubAnswer(f"{path} is a web page, not JSON", decode(body[:80]), _PAGE)
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise HubAnswer(f"{path} holds more than {MAX_VALUES} values", "", _NONE)
    text = _utf8(path, body)
    try:
        document = json.loads(text, parse_constant=str)
    except json.JSONDecodeError as error:
        raise _no_json(path, text, error) from None
    except RecursionError:
        raise HubAnswer(f"{path} is not JSON", "nested too deeply", _NONE) from None
    except ValueError as error:
        raise HubAnswer(f"{path} is not JSON", one_line(str(error)), _NONE) from None
    if not isinstance(document, dict):
        raise HubAnswer(f"{path} is no JSON object", "", _NONE)
    return document


_AGAIN = "an upload or a download ended early: fetch it again, or ask its publisher"
_PAGE = "a proxy or a login answered in its place: fetch it again past that"
_NONE = "this is no configuration of a model"
_MARKS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (codecs.BOM_UTF8, "UTF-8 with a mark"))


def _utf8(path: str, body: bytes) -> str:
    """The text of a file, as the engines read it: UTF-8 without a mark. Raises HubAnswer."""
    form = next((form for mark, form in _MARKS if body.startswith(mark)), "")
    if not form and b"\0" in body[:64]:
        form = "UTF-16"
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        text, form = "", form or f"no UTF-8 at byte {error.start}"
    if form:
        hint = "the engines read UTF-8 without a byte order mark: save it so"
        raise HubAnswer(f"{path} is not in UTF-8", f"it is {form}", hint)
    return text


def _no_json(path: str, text: str, error: json.JSONDecodeError) -> HubAnswer:
    """Whether a text only ends too early, or where it is broken."""
    place = f"line {error.lineno}, column {error.colno}: {one_line(error.msg)}"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return HubAnswer(f"{path} ends too early", place, _AGAIN)
    return HubAnswer(f"{path} is not JSON", place, "mend it there, or fetch it again")


@cache
def _trust(*stores: str | None) -> ssl.SSLContext:
    """The trust store that these variables name; loading it costs tens of milliseconds."""
    import httpx

    return httpx.create_ssl_context()


class _Pace:
    """How long bytes of use have not come; read by another thread."""

    def __init__(self) -> None:
        self._since, self.have = time.monotonic(), 0

    def took(self, count: int) -> None:
        self.have += count
        if self.have >= SLOW_BYTES:
            self._since, self.have = time.monotonic(), 0

    @property
    def left_s(self) -> float:
        return self._since + SILENCE_S - time.monotonic()


def _body(
    client: httpx.Client, request: errors.HubRequest, url: str, path: str, limit: int, pace: _Pace
) -> bytes:
    with client.stream("GET", url) as response:
        for answer in (*response.history, response):
            commit = answer.headers.get("x-repo-commit", request.revision)
            if commit != request.revision:
                detail = f"{path} came from {one_line(commit, 40)}, not from {request.revision}"
                raise HubAnswer("the commit changed meanwhile", detail, "look again")
        if response.status_code != 200:
            raise _refused(response, request)
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("identity", "gzip", "deflate"):
            raise HubAnswer(f"{path} came as {one_line(coding, 20)}", "", errors.ENDPOINT)
        inflate = None if coding == "identity" else zlib.decompressobj(47)
        body = bytearray()
        for chunk in response.iter_raw():
            pace.took(len(chunk))
            try:
                body += chunk if inflate is None else inflate.decompress(chunk, limit + 1)
            except zlib.error as error:
                raise HubAnswer(f"{path} is damaged", one_line(str(error)), "try again") from None
            if len(body) > limit:
                raise _too_large(path, limit, "it was still coming")
        return bytes(body)


def _refused(response: httpx.Response, request: errors.HubRequest) -> Exception:
    code = response.headers.get("x-error-code", "")
    error = {
        "kinds": [_KINDS.get(code, "")],
        "status": response.status_code,
        "rate": response.headers.get("ratelimit", "") or response.headers.get("retry-after", ""),
        "message": response.headers.get("x-error-message", ""),
    }
    return errors.explain(request, error)


def _too_large(path: str, limit: int, how: str) -> HubAnswer:
    title = f"{one_line(path, 80)} is larger than {both_units(limit)}"
    return HubAnswer(title, how, "this is no configuration of a model")
