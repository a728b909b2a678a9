"""EasyR1's batch type in every way."""

import asyncio

import numpy as np

REWARD_NAME = "kinds"
REWARD_TYPE = "batch"


def several(reward_inputs, scale=0.5):
    return [{"overall": scale * len(i["response"]), "length": i["response_length"]} for i in reward_inputs]


def as_a_generator(reward_inputs):
    for reward_input in reward_inputs:
        yield {"overall": len(reward_input["response"])}


def as_an_array(reward_inputs):
    return np.array([len(i["response"]) for i in reward_inputs], np.float32)


async def asynchronous(reward_inputs):
    await asyncio.sleep(0.01)
    return several(reward_inputs)


def place(reward_inputs):
    return [{"overall": place, "of": len(reward_inputs)} for place, _ in enumerate(reward_inputs)]


class Judge:
    def __init__(self):
        self.longest = 0

    def __call__(self, reward_inputs):
        self.longest = max(self.longest, *(len(i["response"]) for i in reward_inputs))
        return [{"overall": len(i["response"]) / self.longest} for i in reward_inputs]


object_with_state = Judge()
