"""Reward functions that do harm: each one is what its name says, on the samples whose response is "now"."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rl_core.rewards.sample import RewardSample

NOW = "now"
Reward = Callable[[RewardSample], object]


def harmful(harm: Callable[[RewardSample], object]) -> Reward:
    def judge(sample: RewardSample) -> object:
        done = harm(sample) if sample.response == NOW else None
        return 1.0 if done is None else done

    return judge


def note(sample: RewardSample, pid: int) -> None:
    """Tell the test of a process: `ground_truth` is a file."""
    with Path(sample.ground_truth).open("a") as file:
        file.write(f"{pid}\n")


leaves_with_0 = harmful(lambda sample: os._exit(0))
kills_itself = harmful(lambda sample: os.kill(os.getpid(), signal.SIGKILL))
stops_itself = harmful(lambda sample: os.kill(os.getpid(), signal.SIGSTOP))
kills_its_parent = harmful(lambda sample: os.kill(os.getppid(), signal.SIGKILL) or time.sleep(60))
asks_its_parent_to_end = harmful(lambda sample: os.kill(os.getppid(), signal.SIGTERM))
stops_its_parent = harmful(lambda sample: os.kill(os.getppid(), signal.SIGSTOP))
kills_its_group = harmful(lambda sample: os.killpg(0, signal.SIGKILL))
kills_its_parents_group = harmful(lambda sample: os.killpg(os.getpgid(os.getppid()), signal.SIGKILL) or time.sleep(60))
interrupts_its_group = harmful(lambda sample: os.killpg(0, signal.SIGINT) or time.sleep(60))
closes_what_is_open = harmful(lambda sample: os.closerange(3, os.sysconf("SC_OPEN_MAX")))
exits = harmful(lambda sample: sys.exit(3))


@harmful
def raises_what_cannot_be_said(sample: RewardSample) -> None:
    class Speechless(BaseException):
        def __str__(self) -> str:
            raise ValueError

    raise Speechless


@harmful
def returns_what_exits(sample: RewardSample) -> object:
    class Leaving:
        def __float__(self) -> float:
            raise SystemExit("from a result")

    return Leaving()


@harmful
def writes_where_it_may_not(sample: RewardSample) -> None:
    write_everywhere(b'["scored", [[{"overall": NaN}, null, null]], 0.0]\n')


@harmful
def writes_nested_lists_where_it_may_not(sample: RewardSample) -> None:
    write_everywhere(b"[" * 100_000 + b"\n")


def write_everywhere(text: bytes) -> None:
    opened = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]  # in a long run they have high numbers
    for descriptor in opened:
        if descriptor > 2:
            with contextlib.suppress(OSError):
                os.write(descriptor, text)


@harmful
def forks_and_returns_twice(sample: RewardSample) -> None:
    os.fork()


@harmful
def leaves_a_child(sample: RewardSample) -> None:
    note(sample, subprocess.Popen(["sleep", "1000"]).pid)


@harmful
def leaves_a_stubborn_child(sample: RewardSample) -> None:
    note(sample, subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1000; done"]).pid)


@harmful
def leaves_a_daemon(sample: RewardSample) -> None:
    """It has a session of its own and no parent."""
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            note(sample, os.getpid())
            time.sleep(1000)
        os._exit(0)
    os.waitpid(child, 0)


@harmful
def kills_its_parent_and_leaves_children(sample: RewardSample) -> None:
    """One has an environment of its own, one a session of its own."""
    note(sample, subprocess.Popen(["sleep", "1000"], env={}).pid)
    note(sample, subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


@harmful
def leaves_an_alarm(sample: RewardSample) -> None:
    signal.alarm(1)


@harmful
def leaves_a_thread(sample: RewardSample) -> None:
    threading.Thread(target=time.sleep, args=(1000,)).start()
