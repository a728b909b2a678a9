"""Real processes, real crashes."""

import errno
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from rl_core.config.reward import RewardConfig
from rl_core.data.images import ImageStoreWriter
from rl_core.image_sizes import ImageSizes
from rl_core.isolation.printed import MAX_HELD
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.sample import RewardSample
from rl_core.types import Score
from tests.rl_core.data.samples import png_bytes
from tests.rl_core.rewards.samples import make_sample, own, pool_of, supervisors

STRANGERS = Path(__file__).with_name("strangers.py")
PATIENCE = 60.0
"""Seconds. It ends waits that would never end, so a slow machine may take as much of it as it likes."""


strangers = partial(pool_of, STRANGERS)


@pytest.fixture(scope="module")
def pool() -> Iterator[RewardPool]:
    with strangers("judge") as pool:
        yield pool


@pytest.fixture(scope="module")
def counting() -> Iterator[RewardPool]:
    with RewardPool(RewardConfig(function="count", workers=2)) as pool:
        yield pool


def counting_samples(number: int) -> list[RewardSample]:
    return [make_sample(f"<answer>{i % 7}</answer>", str(i % 5), length=i % 12) for i in range(number)]


FAILURES = {
    "raise": "KeyError: 'the reason'",
    "hang": "no result within reward.timeout_seconds = 1",
    "runaway": "no result within reward.timeout_seconds = 1",
    "segfault": "the process died in the call: signal SIGSEGV",
    "hungry": "MemoryError: more than reward.memory_limit_gib = 1",
    "leave": "the process died in the call: exit code 3",
    "nan": "component `accuracy` is nan",
    "text": "component `accuracy` is str, not a number",
    "none": "component `overall` is NoneType, not a number",
}


def test_a_failing_call_costs_its_own_sample_and_says_why(pool):
    acts = ["good"] * 40
    for place, act in enumerate(FAILURES):
        acts[4 * place + 1] = act
    scores = pool.score_all([make_sample(act, length=7) for act in acts])
    for act, score in zip(acts, scores, strict=True):
        if act == "good":
            assert score == Score(components={"overall": 1.0, "length": 7.0})
        else:
            assert not score.components
            assert FAILURES[act] in score.error


def test_scoring_processes_load_no_large_library(pool):
    (score,) = pool.score_all([make_sample("modules")])
    assert score.components == {"overall": 1.0}


def test_scoring_processes_are_no_children_of_this_one(pool):
    (score,) = pool.score_all([make_sample("pid")])
    supervisor = psutil.Process(int(score.components["parent"]))
    assert supervisor.ppid() == os.getpid()
    sessions = [os.getsid(pid) for pid in (0, supervisor.pid, int(score.components["pid"]))]
    assert len(set(sessions)) == 3, "a Ctrl-C for the run must not reach the rewards, nor one of theirs the others"


def test_idle_processes_that_end_cost_no_sample_its_score_however_many_they_are(tmp_path):
    meeting = {"folder": str(tmp_path), "people": 5}
    with strangers("meet", workers=5, timeout_seconds=PATIENCE, kwargs=meeting) as pool:
        pool.score_all([make_sample("x")] * 5)
        idle = [psutil.Process(int(file.name)) for file in tmp_path.iterdir()]
        for process in idle:
            process.kill()
        assert psutil.wait_procs(idle, timeout=PATIENCE)[1] == []
        assert pool.score_all([make_sample("x")]) == [Score(components={"overall": 1.0})]


def test_scores_depend_neither_on_order_nor_on_chunks_nor_on_processes(counting):
    samples = counting_samples(300)
    expected = counting.score_all(samples)
    order = list(range(len(samples)))
    random.Random(1).shuffle(order)
    with RewardPool(RewardConfig(function="count", workers=1)) as alone:
        futures = {}
        for place in order:
            futures[place] = alone.submit(samples[place])
            if place % 17 == 0:
                alone.flush()
        alone.flush()
        assert [futures[place].result() for place in range(len(samples))] == expected
    assert {score.parsed for score in expected} == set("0123456")
    assert sum(score.overall for score in expected) == pytest.approx(
        sum(0.9 * (i % 7 == i % 5) + 0.1 for i in range(300))
    )


def test_slow_rewards_start_without_a_flush_and_overlap(tmp_path):
    meeting = {"folder": str(tmp_path), "people": 8}
    with strangers("meet", workers=8, timeout_seconds=PATIENCE, kwargs=meeting) as pool:
        futures = [pool.submit(make_sample("x")) for _ in range(8)]
        assert [future.result(timeout=PATIENCE).overall for future in futures] == [1.0] * 8
        # Now the pool knows that a call is slow, and begins each at once.
        assert pool.submit(make_sample("x")).result(timeout=PATIENCE).overall == 1.0


def test_calls_that_are_slow_together_but_not_alone_all_succeed():
    with strangers("nap", workers=1, timeout_seconds=1.0) as pool:
        pool.score_all([make_sample("0")] * 8)
        scores = pool.score_all([make_sample("0.05")] * 30)  # 1.5 s in one chunk
        assert [score.error for score in scores] == [None] * 30


def test_an_answer_that_is_no_text_costs_its_sample_alone(tmp_path):
    text = (
        "class Loud(str):\n    def __reduce__(self): return (print, ('unpickled',))\n"
        "def parse(response): return {'one': 1, 'loud': Loud('loud')}.get(response, response)\n"
        "def score(sample): return 1.0\n"
    )
    with RewardPool(RewardConfig(function=own(tmp_path, text))) as pool:
        number, loud, plain = pool.score_all([make_sample(text, "") for text in ("one", "loud", "plain")])
    assert number.error == "ValueError: `parse` returned int, not text or None"
    assert (loud.parsed, type(loud.parsed), plain.parsed) == ("loud", str, "plain")


def test_a_reason_repeats_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "key-0123456789")
    text = "import os\ndef score(sample): raise ValueError('no such key: ' + os.environ['JUDGE_API_KEY'])\n"
    with RewardPool(RewardConfig(function=own(tmp_path, text))) as pool:
        (score,) = pool.score_all([make_sample("a", "a")])
    assert score.error == "ValueError: no such key: [JUDGE_API_KEY] (own.py line 2)"


def test_a_function_opens_the_images_of_its_sample(tmp_path):
    with ImageStoreWriter(tmp_path / "images.arrow") as writer:
        uids = tuple(writer.add(png_bytes((width, 20))) for width in (30, 40))
    text = (
        "import os\nfrom pathlib import Path\nfrom rl_core.data.images import ImageStore\n"
        "STORE = ImageStore(Path(os.environ['SIGHTLINE_IMAGES']))\n"
        "def score(sample):\n"
        "    assert [image.size for image in sample.images()] == [size.shown for size in sample.image_sizes]\n"
        "    return sum(STORE.image(uid).width for uid in sample.image_uids)\n"
    )
    config = RewardConfig(function=own(tmp_path, text), workers=1)
    with RewardPool(config, image_store=tmp_path / "images.arrow") as pool:
        sizes = tuple(ImageSizes(original=(9, 9), shown=(width, 20)) for width in (30, 40))
        scores = pool.score_all([replace(make_sample("x"), image_uids=uids, image_sizes=sizes), make_sample("x")])
    assert [score.overall for score in scores] == [70.0, 0.0]


def test_prints_of_a_reward_go_to_the_error_stream(tmp_path, capfd):
    text = (
        "import subprocess, sys\nprint('import')\n"
        "def score(sample):\n    print('one')\n    print('two', file=sys.stderr)\n"
        "    subprocess.run(['echo', 'child'])\n    return 1.0\n"
    )
    with RewardPool(RewardConfig(function=own(tmp_path, text), workers=1)) as pool:
        assert pool.score_all([make_sample("x")])[0].overall == 1.0
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "import\none\ntwo\nchild\n")


def test_a_print_waits_for_no_error_stream_that_nobody_reads(tmp_path):
    function = own(tmp_path, "def score(sample):\n    print('x' * 2**20)\n    return 1.0\n")
    reader, unread = os.pipe()
    stderr = os.dup(2)
    os.dup2(unread, 2)
    os.close(unread)
    try:
        limits = {"timeout_seconds": 5.0, "load_timeout_seconds": 10.0}
        with RewardPool(RewardConfig(function=function, **limits)) as pool:
            assert pool.score_all([make_sample("x")] * 16) == [Score(components={"overall": 1.0})] * 16
            printed, left_out = b"", 0
            while printed.count(b"x") + left_out <= 15 * 2**20:
                printed += os.read(reader, 2**20)
                # A thread that comes late to its first buffer says twice that it is full.
                left_out = sum(
                    map(int, re.findall(rb"\n\[(\d+) bytes that your functions printed are left out", printed))
                )
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(reader)
    assert left_out > 16 * 2**20 - 2 * MAX_HELD - 2**18, "one buffer is being written, the other one waits"
    assert printed.count(b"x") + left_out <= 16 * (2**20 + 1)


def test_closing_ends_a_hanging_call_and_cancels_its_score():
    with strangers("judge", timeout_seconds=100.0) as pool:
        pool.score_all([make_sample("good")])
        future = pool.submit(make_sample("runaway"))
        pool.flush()
        time.sleep(0.2)
    assert future.cancelled()
    with pytest.raises(RuntimeError, match="the pool of reward functions is closed"):
        pool.submit(make_sample("good"))


FULL_DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_error_that_ends_a_thread_of_the_pool_ends_the_run_and_is_named(tmp_path):
    entered, all_wait = threading.Event(), threading.Event()

    def log_event(kind, **facts):
        entered.set()
        all_wait.wait(PATIENCE)
        raise FULL_DISK

    function = own(tmp_path, "REWARD_TYPE = 'batch'\ndef score(inputs): raise ValueError\n")
    hanging = {"function": f"{STRANGERS}:judge"}
    config = RewardConfig(function=function, by_source={"slow": hanging}, workers=2, timeout_seconds=100.0)
    before = supervisors()
    with RewardPool(config, log_event=log_event) as pool:
        futures = [pool.submit(make_sample("x")) for _ in range(3)]
        pool.flush()
        futures += [pool.submit(make_sample("hang", source="slow")) for _ in range(9)]
        assert entered.wait(PATIENCE)
        scoring = []
        deadline = time.monotonic() + PATIENCE
        while len(scoring) < 4 and time.monotonic() < deadline:  # two workers with their supervisors
            scoring = [process for one in supervisors() - before for process in [one, *one.children()]]
            time.sleep(0.02)
        assert len(scoring) == 4
        all_wait.set()
        for future in futures:
            with pytest.raises(RuntimeError, match=r"No space left on device.*start the run again") as ended:
                future.result(timeout=PATIENCE)
            assert ended.value.__cause__ is FULL_DISK
        with pytest.raises(RuntimeError, match="No space left on device"):
            pool.submit(make_sample("x"))
    assert psutil.wait_procs(scoring, timeout=PATIENCE)[1] == [], "the calls that hang end with the pool"


def test_no_process_is_left_when_the_run_is_killed_in_a_hanging_call(tmp_path):
    script = (
        "import psutil, sys, time\n"
        "from tests.rl_core.rewards.test_pool import strangers\nfrom tests.rl_core.rewards.samples import make_sample\n"
        "with strangers('judge', timeout_seconds=1000.0) as pool:\n"
        "    pool.score_all([make_sample('good')])\n"
        "    future = pool.submit(make_sample('runaway')); pool.flush(); time.sleep(0.3)\n"
        "    while len(started := psutil.Process().children(recursive=True)) < 4: time.sleep(0.1)\n"
        "    print(*[p.pid for p in started], flush=True)\n"
        "    time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        processes = [psutil.Process(int(pid)) for pid in run.stdout.readline().split()]
        run.send_signal(signal.SIGKILL)
    assert len(processes) == 4, "two scoring processes, their supervisors"
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    assert alive == []
