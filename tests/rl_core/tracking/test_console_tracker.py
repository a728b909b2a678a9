"""The console shows steps as lines of the log."""

import logging
import math

from rl_core.tracking.console_tracker import ConsoleTracker, metrics_text
from rl_core.tracking.generations import GENERATIONS, VAL_GENERATIONS


def test_metrics_are_grouped_by_family():
    metrics = {"reward/overall": 0.5, "actor/kl": math.nan, "reward/format": 1.0, "lr": 1e-6, "actor/grad_norm": 1 / 3}
    assert metrics_text(metrics) == (
        "  actor  grad_norm 0.3333, kl nan\n  step  lr 1e-06\n  reward  format 1, overall 0.5"
    )


def test_a_step_and_its_responses_are_records_of_the_log(caplog):
    tracker = ConsoleTracker(after=3)
    assert tracker.last_step() == 3
    with caplog.at_level(logging.INFO):
        tracker.log_generations(4, GENERATIONS, {"prompt": ["How many?"], "response": ["[bold]3"], "reward": [1.0]})
        tracker.log_generations(4, VAL_GENERATIONS, {"prompt": ["How few?"], "response": ["2"], "right": [False]})
        tracker.log_step(4, {"reward/overall": 0.5})
        tracker.close()
    assert [record.getMessage() for record in caplog.records] == [
        "step 4, a response\n  prompt: How many?\n  response: [bold]3\n  reward: 1.0",
        "step 4, an answer to a held-out prompt\n  prompt: How few?\n  response: 2\n  right: False",
        "step 4\n  reward  overall 0.5",
    ]
    assert tracker.last_step() == 4
