"""Rewards in every way in which people write one for this project: a function of a sample, or what can be called alike.
test_kinds.py compares each with calling it directly."""

import asyncio
import json
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grading_rules
import numpy as np
from words.counting import share_of_vowels

from rl_core.rewards.sample import RewardSample

HERE = Path(__file__).parent


def number(sample: RewardSample) -> float:
    return len(sample.response) / 7


def truth_value(sample: RewardSample) -> bool:
    return sample.response == sample.ground_truth_text


def several(sample: RewardSample) -> dict[str, float]:
    return {"overall": number(sample), "accuracy": truth_value(sample), "length": sample.response_length}


def numpy_several(sample):
    return {"overall": np.float64(number(sample)), "flag": np.bool_(True), "count": np.int64(3)}


class Judge:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, sample):
        return {"overall": self.weight * len(sample.response)}


callable_object = Judge(0.125)


def text_score(text):
    return sum(map(ord, text)) % 11 / 11


async def asynchronous(sample):
    await asyncio.sleep(0.01)
    return several(sample)


def returns_a_coroutine(sample):
    return asynchronous(sample)


def with_arguments(sample, weights, table, nothing, *, flag=False, name="x"):
    assert nothing is None
    return {"overall": sum(weights) + table["inner"]["deep"][1], "flag": flag, "name": len(name)}


def imports_a_neighbour(sample):
    return grading_rules.grade(sample.response, sample.ground_truth_text)


def imports_a_neighbouring_package(sample):
    return share_of_vowels(sample.response)


def imports_late(sample):
    import late_rules

    return late_rules.lateness(sample.response)


def reads_a_file_beside_it(sample):
    table = json.loads((HERE / "table.json").read_text())
    return table.get(sample.response, table["other"])


def looks_at_the_row(sample):
    boxes = sample.extra["boxes"]
    return {
        "overall": sum(map(sum, boxes)),
        "images": len(sample.image_uids),
        "source": len(sample.data_source),
        "ids": len(sample.response_ids),
        "stopped": sample.finish_reason == "stop",
        "question": len(sample.question) + len(sample.prompt),
    }


def knows_the_type_of_the_truth(sample):
    truth = sample.ground_truth
    match truth:
        case bool():
            return 1
        case int():
            return 2 + truth
        case float():
            return 3 + truth
        case str():
            return 4 + len(truth)
        case list():
            return 5 + sum(map(sum, truth))
        case dict():
            return 6 + truth["box"][1]


def in_threads(sample):
    with ThreadPoolExecutor(4) as threads:
        return sum(threads.map(len, sample.response.split()))


def in_this_process(sample):
    return sum(map(text_score, sample.response.split()))


def in_forked_processes(sample):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(text_score, sample.response.split()))


def in_spawned_processes(sample):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return sum(pool.map(text_score, sample.response.split()))


def unicode_names(sample):
    return {"overall": 1.0, "größe": 2.0, "长度": 3.0, "with space/slash": 4.0}


def raises_its_own(sample):
    class Own(Exception):
        pass

    raise Own("reason")


def asserts(sample):
    assert sample.response == "other", "the reason"
    return 1.0


def takes_nothing():
    return 1.0
