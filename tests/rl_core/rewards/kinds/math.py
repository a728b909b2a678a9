"""Called like a module of Python's own, as EasyR1's example is, and like none of the processes that it starts."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

REWARD_NAME = "math"
REWARD_TYPE = "batch"


def length_of(reward_input):
    from math import sqrt

    return {"overall": sqrt(len(reward_input["response"]))}


def compute_score(reward_inputs):
    return [length_of(reward_input) for reward_input in reward_inputs]


def in_forked_processes(reward_inputs):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        return list(executor.map(length_of, reward_inputs))


def in_spawned_processes(reward_inputs):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(length_of, reward_inputs)
