"""The line of a log that says why a program ended: the one place with the patterns for it.

A program's last words are seldom its reason: llama.cpp prints a stack after `CUDA error: out of
memory`, vLLM's server says `See root cause above` when its engine has died. Of several kinds of
trouble the one that leads to the others comes first; a line that states a level below error, a hint
and what came before the last sign of health count only where nothing else explains.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence

from console.common.logs.level import Entry, Level, read, why_hint
from console.common.text import clean, one_line
from console.common.units import plural

MEMORY, PORT, BIND, LIBRARY, BUILD, ARGUMENT, MODEL, DISK, BROKEN, RIGHTS, RAISED, KILLED = (
    "memory", "port", "bind", "library", "build", "argument", "model", "disk", "broken", "rights",
    "raised", "killed",
)  # fmt: skip
NEXT = {
    MEMORY: "free the memory that it lacks, or let it ask for less (context, layers on the card)",
    PORT: "end what holds its port, or give one of the two another",
    BIND: "correct the address at which it is told to listen",
    LIBRARY: "install the library that it lacks, or mend the path where it looks for it",
    BUILD: "give it a build that is made for this machine and knows its model",
    ARGUMENT: "correct its command line in the site file",
    MODEL: "put back the model file that it names, or correct the path",
    DISK: "free the disk",
    BROKEN: "mend what broke: a driver, a card, or what it needs beside itself",
    RIGHTS: "give its user the rights that it lacks",
    RAISED: "mend what that line of its log says",
    KILLED: "find out who ended it: omni-console recorder, journalctl -k",
}
"""What a person does about each kind of cause, before the program is started again."""
ON_CARD = (
    r"CUDA error: out of memory|cudaMalloc failed: out of memory|CUDA out of memory"
    r"|HIP out of memory|NPU out of memory|XPU out of memory|OutOfDeviceMemory"
    r"|(?:CUDA|hip|CU)_?ERROR_?OUT_?OF_?MEMORY|Cuda failure (?:\d+ )?'out of memory'"
    r"|CUBLAS_STATUS_ALLOC_FAILED|Free memory on device"
    r"|failed to allocate (?:CUDA|ROCm|HIP|Vulkan|SYCL|Metal|MUSA|CANN)\d* ?(?:_\w+)? ?buffer"
    r"|unable to allocate (?:CUDA|ROCm|HIP|Vulkan|SYCL|Metal|MUSA)\d* ?buffer"
    r"|allocating .{1,40} on device.{1,20}out of memory"
    r"|kIOGPUCommandBufferCallbackErrorOutOfMemory|HSA_STATUS_ERROR_OUT_OF_RESOURCES"
    r"|KV cache is needed, which is larger|No available memory for the cache blocks"
    r"|increase --mem-fraction-static|DRAM buffer across"
)
ON_HOST = (
    r"bad_alloc|cannot allocate memory(?! in static TLS)"
    r"|failed to allocate (?:CPU|CUDA_Host)\w* ?buffer|\bMemoryError\b|\bout[- ]of[- ]memory\b"
    r"|(?-i:(?<![\w/.=-])OOM(?![\w/.=-])|\bOOMKilled\b)|\boom-kill\b"
    r"|insufficient memory"
    r"|exceeds the memory usage threshold|memory pressure"
)
_ANY_MEMORY = (
    r"OutOfMemoryError|unable to allocate \w+ buffer|failed to allocate (?:buffer|\d|compute)"
    r"|not enough space (?:in the context's|to allocate)|killed by the OOM killer"
    r"|(?:insufficient|not enough) (?:\w+ )?(?:memory|V?RAM)\b(?! bandwidth)"
)


def _compiled(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_SIGNALLED = _compiled(
    r"\b(?:exit(?:ed)?[ _-]?(?:code|status|with code)?|code|died|status|returncode)\s*[:=( ]+"
    r"(?:-\d{1,2}|13[2-9]|14[0-3])\b",
    r"(?-i:\bKilled\b)|signal: ?(?:killed|terminated)|SIGKILL"
    r"|code=(?:killed|dumped), status=\d+/[A-Z]+",
    r"signaled to shutdown with signal \d+|Signal \d+ \(SIG|Failed core proc\(s\): \{'\w+': -\d+",
)
_DIED = _compiled(
    r"(?:worker|actor|process|scheduler|proc)\b.{0,60}\b(?:died\b|is dead|was killed)"
)
_EXCEPTION = re.compile(
    r"^\s*(?:(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Failure|OutOfResources)"
    r"|(?:[a-z_]\w*\.){2,}[A-Z]\w+)(?::\s*\S|$)"
)
_CONSEQUENCE = re.compile(
    r"see (?:root cause|stack trace|the (?:logs|error))|Engine core initialization failed"
    r"|EngineDeadError|received sigquit|Failed core proc|exiting due to|ShardCannotStart"
    r"|Shard \d+ failed to start|Error when initializing model|CalledProcessError"
    r"|Ninja build failed|build stopped"
    r"|^\s*(?:EOFError|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|SystemExit|asyncio\.exceptions\.CancelledError|KeyboardInterrupt)"
    r"|ChildFailedError|WorkerProc initialization|Server process exited with|ChildProcessError"
    r"|ActorDiedError|EngineCore failed to start|Worker failed with error"
    r"|Shard complete standard error|failed to load (?:CLIP )?model"
    r"|failed to load multimodal model|exception loading model|unable to load model|ncclUnhandled"
    r"|Last error:",
    re.IGNORECASE,
)
"""What follows from something else, and says so."""
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r"\s*File \".*\", line \d+")
_POINTER = re.compile(r"[\s~^]+")
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (MEMORY, _compiled(ON_CARD, ON_HOST, _ANY_MEMORY)),
    (PORT, _compiled(
        r"address already in use|EADDRINUSE|address in use|Only one usage of each socket address"
        r"|port is already allocated"
    )),
    (BIND, _compiled(
        r"(?:could ?n[o']t|cannot|failed to|unable to) bind|bind\(\) (?:failed|to .* failed)"
        r"|error while attempting to bind|cannot assign requested address|EADDRNOTAVAIL"
    )),
    (LIBRARY, _compiled(
        r"error while loading shared libraries|cannot open shared object|undefined symbol"
        r"|symbol lookup error|ModuleNotFoundError|\bImportError: \S|No module named"
        r"|version [`'\"]?[\w.]+['`\"]? not found|failed to map segment|static TLS"
        r"|failed to load (?:shared|native) library|could not load any|exec format error"
        r"|driver (?:version is insufficient|on your system is too old)|unsupported display driver"
        r"|no CUDA-capable device|(?:no )?kernel image|unsupported toolchain"
        r"|No CUDA GPUs are available|Error 80\d: |forward compatibility was attempted"
        r"|libcuda\.so\S* .*not found|Found no NVIDIA driver|could not select device driver"
        r"|nvidia-container-cli"
    )),
    (BUILD, _compiled(
        r"nvcc fatal|nvcc: not found|fatal error: \S+\.\w+: No such file"
        r"|unsupported gpu architecture|CUDA_HOME environment variable is not set"
        r"|could not find nvcc|command 'gcc' failed|ptxas fatal|error: command .* failed"
    )),
    (ARGUMENT, _compiled(
        r"(?:^|error: )(?!(?-i:Invalid argument): [^-])"
        r"(?:unknown|invalid|unrecogni[sz]ed|ambiguous|unexpected|bad) "
        r"(?:command line )?(?:argument|option|flag|value|command)s?\b(?=.*(?:[:'\"]|--))"
        r"|error while handling (?:argument|environment variable)|expected value for argument"
        r"|error: argument \S+: |(?:following|required) arguments (?:are|were) |: invalid choice: "
        r"|expected (?:one|at least one|\d+) arguments?|no such option"
        r"|flag provided but not defined|unrecognized option|requires an argument"
        r"|invalid option -- |unknown flag: |unknown shorthand"
    )),
    (MODEL, _compiled(
        r"(?:unknown|unsupported) (?:model )?architecture"
        r"|architectures .* (?:are|is) not supported|does not recognize this architecture"
        r"|unknown pre-tokenizer|invalid magic|GGUF magic"
        r"|tensor .* (?:not found|missing|has wrong shape)|missing tensor|unable to find tensor"
        r"|wrong number of tensors|not within the file bounds|corrupted or incomplete"
        r"|cannot open (?:model|file)|failed to open (?:GGUF|model)|error loading model: \S.*: "
        r"|does not appear to have a file named|SafetensorError|can't load tokenizer"
        r"|instantiate the backend tokenizer|is not a valid model identifier|Repository Not Found"
        r"|RepositoryNotFoundError|tokenizer(?:\.\w+)? .*not found|is missing from model"
        r"|unknown quantization|invalid split file|GGUF file version|trust_remote_code=True"
    )),
    (DISK, _compiled(
        r"no space left on device|ENOSPC|disk quota exceeded|read-only file system"
        r"|input/output error|creating shared memory segment|stale file handle|too many open files"
    )),
    (BROKEN, _compiled(
        r"(?:CUDA|HIP|ROCm|MUSA|SYCL) (?:runtime |driver )?error(?: \d+)?(?: at \S+| in \S+)?: \S"
        r"|(?:CUDA|HSA_STATUS)_ERROR_\w+|(?-i:\b(?:cuda|hip)Error[A-Z]\w+)|GGML_ASSERT"
        r"|(?<!health )\bcheck failed: |watchdog timeout(?!.*soft=True)"
        r"|(?:found|logits are) -?nan\b|failed to sample token|general protection fault"
        r"|\bsegfault at |access violation"
        # the C library, which ends the program by itself
        r"|(?:free|malloc|realloc|munmap_chunk)\(\): |double free or corruption|malloc: \*\*\*"
        r"|corrupted (?:size|double-linked)|(?:stack smashing|buffer overflow) detected"
        r"|pure virtual method called|floating point exception"
        r"|assert(?:ion)? .*failed|Memory access fault|cannot run the operation"
        r"|\.\w+:\d+: fatal error|^fatal error: |DeviceLost|NCCL error"
        r"|collective operation timeout|panicked at|^panic: |(?-i:\bSIGSEGV\b)|\w+VMM Failure"
        r"|RPC server crashed|Fatal Python error|illegal instruction|\bbus error\b|Xid \("
        r"|uncorrectable ECC|fallen off the bus|GPU is lost|cublas\w* error|CUDNN_STATUS_\w+"
        r"|CUBLAS_STATUS_\w+|DriverError\("
    )),
    (RIGHTS, _compiled(
        r"permission denied|operation not permitted|gated repo|GatedRepoError|40[13] Client Error"
        r"|access to model .* is restricted|Unauthorized for url"
    )),
)  # fmt: skip
_LAST_RESORTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (BROKEN, _compiled(
        r"health check failed|could ?n[o']t get a response from|timed out waiting for"
    )),
    (KILLED, _SIGNALLED),
    (KILLED, _DIED),
    (MODEL, _compiled(
        r"no such file or directory|failed to open|error loading model|failed to load model"
    )),
    (BROKEN, _compiled(
        r"terminate called|due to uncaught exception|MPI_ABORT was invoked|CUDA error"
        r"|signal: aborted|terminated unexpectedly|has terminated|no longer running"
        r"|exit status (?!0\b)\w+"
    )),
)  # fmt: skip
_DEATH = _compiled(r"core dumped|segmentation fault|ggml_abort|(?-i:^Aborted\b)")
"""How a program ends that says no more; what it stated as an error just before may say why."""
MAX_BEFORE_DEATH = 3
"""Lines before such an end in which an error counts as its reason."""
_OTHER_BIND = _compiled(
    r"cannot assign|EADDRNOTAVAIL|permission denied|EACCES|not permitted|Errno (?:13|99|-\d)\b"
    r"|name or service not known|nodename nor servname|getaddrinfo|family not supported"
)
"""Why a program cannot listen although nobody has its address."""
_OF_REQUEST = re.compile(r"\b(?:request|slot|task|client)\b", re.IGNORECASE)
_CHAIN = re.compile(
    r"During handling of the above exception|direct cause of the following exception"
)
_HEALTH = re.compile(
    r"server is listening|Uvicorn running on|Application startup complete|all slots are idle"
    r"|HTTP/1\.[01]\" 2\d\d|\| 2\d\d \||\bDecode batch|fired up and ready|Starting vLLM API server"
)
"""A line of a server that serves: what came before it did not end it."""
_WHAT = re.compile(r"^\s*what\(\):\s*")
_UNFINISHED = re.compile(r"panicked at .*:$|\d+ validation errors? for \S+(?:: [\w.-]+)?$")
"""A line of Rust's or pydantic's that says its reason in the next; pydantic may name a field, or
several, in between."""
MAX_CAUSE = 200
"""Characters of a cause that are shown."""


def may_be_taken(lines: Sequence[str]) -> bool:
    """Whether a program ended, as its log says, because its address is in use, or could not listen
    for a reason that it does not name: llama.cpp names none."""
    kind, words = cause_of(lines)
    return kind == PORT or (kind == BIND and _OTHER_BIND.search(words) is None)


def cause_of(
    lines: Sequence[str], code: int | None = None, oom_kills: int | None = None
) -> tuple[str, str]:
    """(kind, clean line) of the line that explains; two empty texts if none does.

    `code` and `oom_kills`: how the program ended, as `ended_words` takes them. Of one
    kind the first line counts, since what follows it is its consequence; of exceptions that were
    raised while others were handled, the first.
    """
    entries = list(_entries(lines))
    healthy = max(
        (at for at, entry in enumerate(entries) if _HEALTH.search(entry.text)), default=-1
    )
    for part in (entries[healthy + 1 :], entries):
        serious = [entry for entry in part if not _is_low(entry)]
        if cause := _best_cause(serious):
            return cause
    if cause := _best_cause([entry for entry in entries if _is_low(entry)], low=True):
        return cause
    if ended := ended_words(code, oom_kills):
        return KILLED, ended
    errors = [entry.text for entry in entries if entry.level is Level.ERROR and entry.text.strip()]
    weak = [entry.text for entry in entries if _EXCEPTION.search(entry.text)]
    for text in (*errors[:1], *weak[-1:]):
        return RAISED, _shown(text)
    return "", ""


def matching(pattern: re.Pattern[str], lines: Sequence[str]) -> list[str]:
    """The lines that match, without those that state a level below error or are a hint."""
    entries = [(line, read(clean(line))) for line in lines]
    return [
        line
        for line, entry in entries
        if not _is_low(entry) and _explains(pattern, entry) is not None
    ]


def ended_words(code: int | None, oom_kills: int | None = None) -> str:
    """How a program was ended by a signal, in words; "" if it was not, or if that is not known.

    `oom_kills`: how many processes the kernel has killed for memory meanwhile, if that is known.
    """
    if code is None or not (code < 0 or 128 < code <= 128 + 64):
        return ""
    number = -code if code < 0 else code - 128
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:
        name = ""
    words = f"ended by signal {number}{name}"
    if number != signal.SIGKILL:
        return words
    if oom_kills is None:
        return f"{words}: out of memory, or somebody killed it"
    if not oom_kills:
        return f"{words}; the kernel counted no OOM kill meanwhile, so somebody killed it"
    return f"{words}; the kernel counted {plural(oom_kills, 'OOM kill')} meanwhile"


def _entries(lines: Sequence[str]) -> Iterator[Entry]:
    """The lines without their prefixes. What an exception says in C++, in Rust and of pydantic
    stands in its next line; of a progress bar the last part counts."""
    held: Entry | None = None
    for line in lines:
        entry = read(clean(line.rstrip("\r\n").rsplit("\r", 1)[-1]))
        if held is not None:
            if _WHAT.match(entry.text) or _UNFINISHED.search(held.text):
                words = f"{held.text.rstrip(': ')}: {_WHAT.sub('', entry.text).strip()}"
                held, entry = None, Entry(words, entry.level)
            else:
                yield held
                held = None
        if entry.text.startswith("terminate called") or _UNFINISHED.search(entry.text):
            held = entry
        else:
            yield entry
    if held is not None:
        yield held


def _is_low(entry: Entry) -> bool:
    return entry.level in (Level.LOW, Level.WARNING)


def _best_cause(entries: Sequence[Entry], *, low: bool = False) -> tuple[str, str] | None:
    """The kind and the words of the line among these that explains best."""
    for kind, pattern in _KINDS:
        for entry in entries:
            if (match := _explains(pattern, entry)) is not None:
                return kind, _shown(entry.text, match.start())
    if not low and (text := _raised(entries)):
        return KILLED if _SIGNALLED.search(text) else RAISED, _shown(text)
    for kind, pattern in _LAST_RESORTS:
        for entry in entries:
            if (match := _explains(pattern, entry)) is not None:
                return kind, _shown(entry.text, match.start())
    return _died(entries)


def _died(entries: Sequence[Entry]) -> tuple[str, str] | None:
    """The kind and the words of an end that says no more than that it is one."""
    spoken = [entry for entry in entries if entry.text.strip()]
    for at, entry in enumerate(spoken):
        if _DEATH.search(entry.text):
            for before in spoken[max(0, at - MAX_BEFORE_DEATH) : at]:
                if before.level is Level.ERROR and not _OF_REQUEST.search(before.text):
                    return RAISED, _shown(before.text)
            return BROKEN, _shown(entry.text)
    return None


def last_words(lines: Iterable[str], count: int, cause: str = "") -> str:
    """The last lines of an output in one, each in quotes: without the frames of a traceback, and
    without the line that names the cause, which is said already."""
    output_lines: list[str] = []
    framed = False
    for line in map(str.strip, lines):
        source = framed and not _EXCEPTION.search(line)
        framed = _FRAME.match(line) is not None
        if line and not (framed or source or _TRACEBACK in line or _POINTER.fullmatch(line)):
            output_lines.append(line)
    return ", ".join(f"“{line}”" for line in output_lines[-count:] if not (cause and cause in line))


def _explains(pattern: re.Pattern[str], entry: Entry) -> re.Match[str] | None:
    """Where a line matches that is neither a hint nor an echo."""
    match = pattern.search(entry.text)
    return match if match is not None and not why_hint(entry.text, match.span()) else None


def _raised(entries: Sequence[Entry]) -> str:
    """The exception that leads to the others: the first since the last traceback that began by
    itself. A consequence is none."""
    root, begins, chained = "", True, False
    for entry in entries:
        if _CHAIN.search(entry.text):
            chained = True
        elif _TRACEBACK in entry.text:
            begins = not chained
        elif _EXCEPTION.search(entry.text) and not _CONSEQUENCE.search(entry.text):
            root = entry.text if begins or not root else root
            begins = chained = False
    return root


def _shown(text: str, at: int = 0) -> str:
    """A cause to be shown; of a long line the part around `at`."""
    text = text.strip()
    if at > MAX_CAUSE * 2 // 3 and len(text) > MAX_CAUSE:
        begin = text.rfind(" ", 0, at - MAX_CAUSE // 3) + 1
        return f"…{one_line(text[begin:], MAX_CAUSE - 1)}"
    return one_line(text, MAX_CAUSE)
