"""EasyR1's batch type in every way."""

import asyncio

import numpy as np

REWARD_NAME = "kinds"
REWARD_TYPE = "batch"


def several(reward_inputs, scale=0.5):
    return [{"overall": scale * len(i["response"]), "length": i["response_length"]} for i in reward_inputs]


def numbers(reward_inputs):
    return [len(i["response"]) for i in reward_inputs]


def as_a_tuple(reward_inputs):
    return tuple(several(reward_inputs))


def as_a_generator(reward_inputs):
    for reward_input in reward_inputs:
        yield {"overall": len(reward_input["response"])}


def as_an_expression(reward_inputs):
    return ({"overall": len(i["response"])} for i in reward_inputs)


def as_a_map(reward_inputs):
    return map(len, [i["response"] for i in reward_inputs])


def as_values(reward_inputs):
    return dict(enumerate(several(reward_inputs))).values()


def as_an_array(reward_inputs):
    return np.array([len(i["response"]) for i in reward_inputs], np.float32)


async def asynchronous(reward_inputs):
    await asyncio.sleep(0.01)
    return several(reward_inputs)


def compares_with_the_others(reward_inputs):
    lengths = np.array([len(i["response"]) for i in reward_inputs], float)
    return [{"overall": value} for value in (lengths - lengths.mean()) / (lengths.std() + 1.0)]


def place(reward_inputs):
    return [{"overall": place, "of": len(reward_inputs)} for place, _ in enumerate(reward_inputs)]


class Judge:
    def __init__(self):
        self.longest = 0

    def __call__(self, reward_inputs):
        self.longest = max(self.longest, *(len(i["response"]) for i in reward_inputs))
        return [{"overall": len(i["response"]) / self.longest} for i in reward_inputs]


object_with_state = Judge()


def with_tables(reward_inputs, table, names):
    return [{"overall": table[names[0]]} for _ in reward_inputs]


def types_of_truths(reward_inputs):
    return [{"overall": len(type(i["ground_truth"]).__name__)} for i in reward_inputs]
