"""What is computed for all requests at once, beside what vLLM computes for each."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from rl_core.rollout.cpu.worker import DecodeRunner
from tests.rl_core.rollout.engines import Running, make_requests, training_sampling


@pytest.fixture
def runner(synced: Running) -> DecodeRunner:
    (runner,) = synced.engine._engine.collective_rpc(lambda worker: worker.model_runner)
    assert type(runner) is DecodeRunner
    return runner


@pytest.mark.parametrize("running", ["qwen2_5_vl", "qwen2_vl", "qwen3_vl"], indirect=True)
def test_positions_are_those_of_vllm(synced: Running, runner: DecodeRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Counter()

    def of_a_step(output: Any) -> None:
        runner.mrope_positions.np[:] = -1
        DecodeRunner._calc_mrope_positions(runner, output)
        ours = runner.mrope_positions.np.copy()
        runner.mrope_positions.np[:] = -1
        CPUModelRunner._calc_mrope_positions(runner, output)
        assert (ours == runner.mrope_positions.np).all()
        steps[output.total_num_scheduled_tokens == runner.input_batch.num_reqs] += 1

    monkeypatch.setattr(runner, "_calc_mrope_positions", of_a_step)
    synced.generate(make_requests(synced.policy.prompts(), 6), training_sampling())
    assert steps[True] > 3, "steps that only decode"
    assert steps[False] > 1, "steps with prompts"


def states(synced: Running, runner: DecodeRunner, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The batch after each step of a generation, and what the step found out about its images."""
    found, images = [], []
    sample, gather = runner.sample_tokens, runner._gather_mm_embeddings

    def noted_gather(*args: Any) -> Any:
        features, places = gather(*args)
        images.append(([feature.numpy().copy() for feature in features], places.tolist()))
        return features, places

    def noted_sample(*args: Any) -> Any:
        output = sample(*args)
        batch = runner.input_batch
        count = batch.num_reqs
        ends = batch.num_tokens_no_spec[:count].tolist()
        first = min(map(int, runner.requests))
        tables = [table.get_numpy_array()[:count].copy() for table in batch.block_table.block_tables]
        requests = [runner.requests[request] for request in batch.req_ids]
        found.append(
            {
                "requests": [int(request) - first for request in batch.req_ids],
                "tokens": [batch.token_ids_cpu[row, :end].tolist() for row, end in enumerate(ends)],
                "are tokens": [batch.is_token_ids[row, :end].tolist() for row, end in enumerate(ends)],
                "computed": batch.num_computed_tokens_cpu[:count].tolist(),
                "blocks": [np.count_nonzero(table, axis=1).tolist() for table in tables],
                "states": [(state.num_computed_tokens, list(state.output_token_ids)) for state in requests],
                "state blocks": [[len(blocks) for blocks in state.block_ids] for state in requests],
                "sampled": output.sampled_token_ids,
                "log-probs": [array.tolist() for array in output.logprobs[:3]],
            }
        )
        return output

    synced.sync()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "sample_tokens", noted_sample)
        patch.setattr(runner, "_gather_mm_embeddings", noted_gather)
        synced.generate(make_requests(synced.policy.prompts(), 8), training_sampling())
    return [{**state, "images": shown} for state, shown in zip(found, images, strict=True)]


@pytest.mark.parametrize("running", ["qwen2_5_vl"], indirect=True)
def test_the_batch_is_that_of_vllm_after_every_step(
    synced: Running, runner: DecodeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = states(synced, runner, monkeypatch)
    with monkeypatch.context() as patch:
        for method in ("_update_states", "_gather_mm_embeddings", "_bookkeeping_sync"):
            patch.setattr(DecodeRunner, method, getattr(CPUModelRunner, method))
        theirs = states(synced, runner, monkeypatch)
    assert any(len(state["images"][0]) for state in ours), "steps that look at images"
    assert max(max(state["blocks"][0]) for state in ours) > min(min(state["blocks"][0]) for state in ours)
    for our_state, their_state in zip(ours, theirs, strict=True):
        our_features, their_features = our_state.pop("images"), their_state.pop("images")
        assert our_state == their_state
        assert our_features[1] == their_features[1]
        for our_feature, their_feature in zip(our_features[0], their_features[0], strict=True):
            np.testing.assert_array_equal(our_feature, their_feature)
