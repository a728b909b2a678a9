"""EasyR1's sequential type in every way."""

import asyncio
import re

REWARD_NAME = "kinds"
REWARD_TYPE = "sequential"


def several(reward_input, format_weight=0.1):
    answer = re.search(r"(\d+)", reward_input["response"])
    accuracy = float(answer is not None and answer.group(1) == str(reward_input["ground_truth"]))
    return {
        "overall": (1 - format_weight) * accuracy + format_weight,
        "accuracy": accuracy,
        "length": reward_input["response_length"],
    }


def its_keys(reward_input):
    return {"overall": 1.0} | dict.fromkeys(reward_input, 1.0)


def changes_its_input(reward_input):
    reward_input["response"] = reward_input.pop("response").upper()
    return {"overall": reward_input["response"].count("A")}


async def asynchronous(reward_input):
    await asyncio.sleep(0.01)
    return several(reward_input)


def reads_a_missing_key(reward_input):
    return {"overall": reward_input["prompt"]}
