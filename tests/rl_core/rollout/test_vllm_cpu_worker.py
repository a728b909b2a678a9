"""Positions that are computed for all requests at once, beside vLLM's own."""

from collections import Counter
from copy import copy
from typing import Any

import pytest
import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from rl_core.rollout.vllm_cpu_worker import DecodeRunner
from tests.rl_core.rollout.engines import Running, make_requests, training_sampling


@pytest.mark.parametrize("running", ["qwen2_5_vl", "qwen2_vl", "qwen3_vl"], indirect=True)
def test_positions_are_those_of_vllm(synced: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    (runner,) = synced.engine._engine.collective_rpc(lambda worker: worker.model_runner)
    assert type(runner) is DecodeRunner
    steps = Counter()

    def of_a_step(output: Any) -> None:
        runner.mrope_positions.np[:] = -1
        DecodeRunner._calc_mrope_positions(runner, output)
        ours = runner.mrope_positions.np.copy()
        runner.mrope_positions.np[:] = -1
        CPUModelRunner._calc_mrope_positions(runner, output)
        assert (ours == runner.mrope_positions.np).all()
        steps[output.total_num_scheduled_tokens == runner.input_batch.num_reqs] += 1

    def of_a_prompt(state: Any) -> None:
        theirs = copy(state)
        DecodeRunner._init_mrope_positions(runner, state)
        CPUModelRunner._init_mrope_positions(runner, theirs)
        assert torch.equal(state.mrope_positions, theirs.mrope_positions)
        assert state.mrope_position_delta == theirs.mrope_position_delta

    monkeypatch.setattr(runner, "_calc_mrope_positions", of_a_step)
    monkeypatch.setattr(runner, "_init_mrope_positions", of_a_prompt)
    synced.generate(make_requests(synced.policy.prompts(), 6), training_sampling())
    assert steps[True] > 3, "steps that only decode"
    assert steps[False] > 1, "steps with prompts"
