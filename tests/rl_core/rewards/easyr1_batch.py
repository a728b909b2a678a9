"""A reward file as EasyR1's documentation describes the batch type, with a few ways to go wrong."""

import os
import re
import time
from typing import Any

REWARD_NAME = "tests"
REWARD_TYPE = "batch"


def compute_score(reward_inputs: list[dict[str, Any]], format_weight: float = 0.1) -> list[dict[str, float]]:
    if not isinstance(reward_inputs, list):
        raise ValueError("wants a list")
    return [one_score(reward_input, format_weight) for reward_input in reward_inputs]


def one_score(reward_input: dict[str, Any], format_weight: float) -> dict[str, float]:
    assert set(reward_input) == {"response", "response_length", "ground_truth"}
    misbehave(reward_input["response"])
    answer = re.search(r"<answer>(.*)</answer>", reward_input["response"])
    accuracy = float(answer is not None and answer.group(1) == reward_input["ground_truth"])
    overall = (1 - format_weight) * accuracy + format_weight * (answer is not None)
    return {"overall": overall, "accuracy": accuracy, "length": reward_input["response_length"]}


def misbehave(response: str) -> None:
    if response == "raise":
        raise KeyError("the reason")
    if response == "hang":
        time.sleep(600)
    if response == "leave":
        os._exit(3)


def place(reward_inputs: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Where each sample stands in the batch, and how large it is."""
    return [{"overall": float(i), "size": len(reward_inputs)} for i in range(len(reward_inputs))]


def short(reward_inputs: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Forgets the last one of several."""
    return [{"overall": 1.0}] * max(1, len(reward_inputs) - 1)


def bad_middle(reward_inputs: list[dict[str, Any]]) -> list[dict[str, float]]:
    """One result of several is no number."""
    return [{"overall": "high" if i == 1 else len(reward_inputs)} for i in range(len(reward_inputs))]


def parse(reward_inputs: int, something_else: int) -> None:
    """Not our parse: EasyR1 knows none."""
