"""Queries NVML one card at a time, and puts its error codes in an operator's words.

`python -m console.host.gpu.nvml` prints what is in use as one JSON line; exit code 3 and a line on
stderr mean that a driver or a GPU is missing. An unknown value is null, never zero. pynvml is
imported when needed. Each phrase has a short head that fits a row, then `: ` and what can be done.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypedDict, TypeVar

from console.common.errors import ConsoleError
from console.common.text import one_line

T = TypeVar("T")

NOT_INITIALISED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
IS_LOST = 15
RESET_REQUIRED = 16
MISMATCH = 18
VERSION_MISMATCH = 25
UNKNOWN = 999
ABSENT = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH})
"""This card or driver does not have the figure; nothing is wrong."""
GONE = frozenset({IS_LOST, RESET_REQUIRED})
"""The card itself is gone, whatever the query."""

LOST = "lost: the card fell off the bus; a reset or a reboot brings it back"
RESET = "reset required: `nvidia-smi --gpu-reset`, or reboot"
SILENT = "no answer"
MISSING = "pynvml cannot be loaded: reinstall omni-console"
MIG = "MIG: NVML reports no utilisation; figures belong to the instances"
NO_LIBRARY = "no NVIDIA driver: libnvidia-ml.so.1 is not there"
UNIFIED = "unified memory: the card uses the host's RAM"
_WORDS = {
    NO_PERMISSION: "no permission to ask NVML: this user may not open the NVIDIA devices",
    DRIVER_NOT_LOADED: "NVIDIA driver not loaded: load its kernel module, or reboot",
    TIMEOUT: "the NVIDIA driver timed out: `dmesg` may say why",
    LIBRARY_NOT_FOUND: NO_LIBRARY,
    IS_LOST: LOST,
    RESET_REQUIRED: RESET,
    MISMATCH: "driver/library version mismatch: reboot, or reload the nvidia kernel module",
    UNKNOWN: "unknown NVML error: in a container restart it, else `dmesg` may say why",
}


class CardWorker(Generic[T]):
    """A thread for one card, which does one job at a time: a call that hangs in the driver blocks
    this card and no other. `asked_at`, `answered_at`: the caller's own times, None for never."""

    def __init__(self, name: str) -> None:
        self.asked_at: float | None = None
        self.answered_at: float | None = None
        self._name = name
        self._job: Callable[[], T] | None = None
        self._result: T | Exception | None = None
        self._wake = threading.Semaphore(0)
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    def begin(self, job: Callable[[], T], at: float) -> None:
        """Start a job in the background. Only while not busy."""
        self._job, self.asked_at = job, at
        self._result = None
        self._idle.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._wake.release()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether the job is done."""
        return self._idle.wait(max(0.0, seconds))

    def result(self) -> T:
        """The result of a finished job. Raises what the job raised."""
        assert self._result is not None
        if isinstance(self._result, Exception):
            raise self._result
        self.answered_at = self.asked_at
        return self._result

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            assert self._job is not None
            try:
                self._result = self._job()
            except Exception as error:
                self._result = error
            self._idle.set()


def load() -> Any:
    """The pynvml module; raises ImportError."""
    import pynvml

    return pynvml


def opened() -> tuple[Any, str]:
    """NVML, ready for queries; or None and why it is not."""
    try:
        nvml = load()
    except ImportError:
        return None, MISSING
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, words(error)
    return nvml, ""


def got(nvml: Any, call: str, *arguments: Any) -> Any:
    """One answer; None if this card or driver has none."""
    try:
        return getattr(nvml, call)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def code_of(error: Exception) -> int:
    """NVML's number for an NVMLError; UNKNOWN for any other."""
    value = getattr(error, "value", UNKNOWN)
    return value if isinstance(value, int) else UNKNOWN


def words(error: Exception) -> str:
    """What an NVMLError means, and what to do; the library's own words for unknown ones."""
    known = _WORDS.get(code_of(error))
    return known or one_line(str(error)).lower() or "unknown NVML error"


def text(value: str | bytes) -> str:
    """A name or UUID as NVML gives it, harmless."""
    return one_line(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)


def mig_on(nvml: Any, handle: Any) -> bool:
    """Whether MIG is on; a card or a driver that does not know MIG has it off."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError as error:
        if code_of(error) in ABSENT:
            return False
        raise


UNAVAILABLE = 3
GPU_LOST = "the GPU is lost to the driver"


class Vram(TypedDict, total=False):
    """Bytes of one GPU; null with `why` if NVML does not say."""

    used: int | None
    total: int | None
    why: str


class NoGpu(ConsoleError):
    """NVML is unusable: no library, no driver, or a driver that does not fit."""


def read() -> dict[str, Vram]:
    """Used and total bytes of each GPU by UUID; raises NoGpu if NVML is unusable.

    A GPU whose UUID is unavailable (it fell off the bus) is listed as `index:N`.
    """
    try:
        nvml = load()
    except ImportError as error:
        why = one_line(str(error))
        raise NoGpu("NVML cannot be loaded", why, "reinstall omni-console") from None
    try:
        nvml.nvmlInit()
        return dict(_card_memory(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        why = one_line(str(error))
        raise NoGpu("No GPU driver answers", why, "`nvidia-smi` shows the driver") from None
    finally:
        with contextlib.suppress(nvml.NVMLError):  # a lost GPU can take the shutdown along
            nvml.nvmlShutdown()


def _card_memory(nvml: Any, index: int) -> tuple[str, Vram]:
    key = f"index:{index}"
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        key = text(nvml.nvmlDeviceGetUUID(handle))
        if mig_on(nvml, handle):
            return key, _unknown("MIG mode: memory belongs to its instances")
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        if not memory.total:
            return key, _unknown(UNIFIED)
        return key, {"used": int(memory.used), "total": int(memory.total)}
    except nvml.NVMLError_GpuIsLost:
        return key, _unknown(GPU_LOST)
    except nvml.NVMLError as error:
        return key, _unknown(one_line(str(error)).lower())


def _unknown(why: str) -> Vram:
    return {"used": None, "total": None, "why": why}


def main() -> int:
    """Print the line; 0, or 3 with the cause on stderr."""
    try:
        gpus = read()
    except NoGpu as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    print(json.dumps(gpus), flush=True)
    lost = [key for key, value in gpus.items() if value.get("why") == GPU_LOST]
    if lost:
        print(f"{GPU_LOST}: {', '.join(lost)}", file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
