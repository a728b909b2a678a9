"""Reward functions that wait for something: a judge behind a network, say."""

import asyncio
import functools
import time

from rl_core.rewards.sample import RewardSample

_started: list[asyncio.AbstractEventLoop] = []
_napping: list[RewardSample] = []


async def nap(sample: RewardSample) -> dict[str, float]:
    """Tells how many calls its process had under way when it began, itself included."""
    _napping.append(sample)
    under_way = len(_napping)
    await asyncio.sleep(float(sample.response))
    _napping.remove(sample)
    return {"overall": 1.0, "under_way": under_way}


async def judge(sample: RewardSample) -> dict[str, float]:
    if sample.response == "raise":
        raise KeyError("the reason")
    if sample.response == "own timeout":
        raise TimeoutError("the judge's server")
    if sample.response == "hang":
        await asyncio.sleep(600)
    if sample.response == "block":
        time.sleep(600)
    await asyncio.sleep(0.01)
    return {"overall": 1.0}


async def same_loop(sample: RewardSample) -> float:
    """A client that a file keeps belongs to the loop it was made in."""
    _started.append(asyncio.get_running_loop())
    await asyncio.sleep(0)
    return float(len(set(map(id, _started))))


@functools.wraps(judge)
def decorated(sample: RewardSample):
    return judge(sample)


wrapped = functools.partial(judge)
