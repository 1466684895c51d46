"""What a server says of its requests, in the forms that engines have for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import pytest

from console.runtime.occupancy import Occupancy, look
from tests.ports import free_port
from tests.runtime.serving import Quiet, at_work

IDLE = [{"id": 0, "is_processing": False}, {"id": 1, "id_task": 4, "is_processing": False}]
BUSY = [{"id": 0, "id_task": 7, "is_processing": True}, *IDLE[1:]]
OLD = [{"id": 0, "task_id": 9, "state": 1}, {"id": 1, "task_id": -1, "state": 0}]
LLAMA = """\
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
llamacpp:tokens_predicted_total 640
llamacpp:tokens_predicted_seconds_total 32
llamacpp:prompt_tokens_total 55
"""
VLLM = """\
vllm:num_requests_running{engine="0",model_name="a}b"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0 1700000000000
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:generation_tokens_total{engine="0"} 100.0
vllm:generation_tokens_created{engine="0"} 1.7e9
vllm:prompt_tokens_total{engine="0"} 30.0
"""


class Server(ThreadingHTTPServer):
    """`told`: what it says by path, a status or a body."""

    def __init__(self, told: dict[str, int | str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.told = told


class Handler(Quiet):
    server: Server

    def do_GET(self) -> None:
        found = self.server.told.get(self.path, 404)
        if isinstance(found, int):
            self.whole(found, b"{}")
        else:
            self.whole(200, found.encode())


@contextmanager
def served(**told: int | str) -> Iterator[str]:
    server = Server({f"/{name}": found for name, found in told.items()})
    with at_work(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize(
    ("told", "processing", "live", "generated", "prompted"),
    [
        ({"slots": json.dumps(IDLE)}, 0, True, None, None),
        ({"slots": json.dumps(BUSY), "metrics": LLAMA}, 1, True, 640, 55),
        ({"slots": json.dumps(OLD)}, 1, True, None, None),
        ({"slots": 501, "metrics": LLAMA}, 3, False, 640, 55),
        ({"metrics": VLLM}, 4, False, 100, 30),
        ({"metrics": VLLM.replace("vllm:", "ray_vllm_")}, 4, False, 100, 30),
        ({"metrics": VLLM.replace("vllm:", "aphrodite:")}, 4, False, 100, 30),
        ({"metrics": "sglang:num_running_reqs{tp_rank=\"0\"} 1.0\nsglang:num_queue_reqs 0\n"
                     "sglang:generation_tokens_total 9\n"}, 1, False, 9, None),
        ({"metrics": "tgi_batch_current_size 1\ntgi_queue_size 2\n"}, 3, False, None, None),
    ],
)  # fmt: skip
def test_each_engine_is_read(
    told: dict[str, int | str], processing: int, live: bool, generated: float, prompted: float
) -> None:
    with served(**told) as url:
        for at in (url, f"{url}/v1"):
            found = look(at, counters=True)
            assert (found.processing, found.live) == (processing, live)
            assert (found.generated, found.prompted, found.why) == (generated, prompted, "")


def test_slots_tell_the_number_of_their_newest_request() -> None:
    for slots, tasks in ((IDLE, {(1, 4)}), (BUSY, {(0, 7), (1, 4)}), (OLD, {(0, 9)})):
        with served(slots=json.dumps(slots)) as url:
            assert look(url).tasks == tasks


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, "/slots says HTTP 404, /metrics says HTTP 404"),
        ({"slots": 501, "metrics": 501}, "/slots says HTTP 501, /metrics says HTTP 501"),
        ({"slots": 401, "metrics": 401}, "/slots says HTTP 401, /metrics says HTTP 401"),
        ({"slots": "<html>", "metrics": "<html>"},
         "/slots is no JSON, /metrics does not name the requests"),
        ({"slots": "[]", "metrics": "up 1\n"},
         "/slots lists none, /metrics does not name the requests"),
        ({"slots": "{}", "metrics": "vllm:num_requests_running\nvllm:num_requests_running NaN\n"},
         "/slots lists none, /metrics does not name the requests"),
    ],
)  # fmt: skip
def test_a_server_that_does_not_tell_says_why(told: dict[str, int | str], why: str) -> None:
    with served(**told) as url:
        found = look(url)
        assert (found.known, found.processing, found.why) == (False, None, why)


def test_nobody_there() -> None:
    found = look(f"http://127.0.0.1:{free_port()}")
    assert found == Occupancy(why="connection refused", refused=True)
