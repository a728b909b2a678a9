"""A worker's state on disk: exact when it comes back, with a probe of the trainer's own log-probs."""

import json

import numpy as np
import pytest
import torch

from rl_core.checkpoints.probe import differences, plain_distribution, read_probe
from rl_core.digests import folder_records, hash_file
from rl_core.training.batches import UpdateBatch
from rl_core.training.log_prob_pass import compute_log_probs
from rl_core.training.probing import ProbeMismatch
from tests.rl_core.builders import groups_of
from tests.rl_core.steps import changed, optimizer_batch, save_state


def weights(worker) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in worker.trainer.policy.model.state_dict().items()}


@pytest.mark.parametrize("model_only", [False, True])
def test_a_snapshot_is_written_as_the_state_was_when_it_was_taken(worker, train_groups, tmp_path, model_only):
    batch = UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False)
    probe = groups_of(train_groups)[:1]
    worker.update(batch)
    expected = save_state(worker, tmp_path / "state", model_only=model_only, probe=probe)
    worker.take_snapshot(model_only=model_only, probe=probe, copy=True)
    worker.update(batch)
    assert worker.write_snapshot(tmp_path / "snapshot") == expected
    assert folder_records(tmp_path / "snapshot") == folder_records(tmp_path / "state")
    for name, record in expected.items():
        path = tmp_path / "state" / name
        assert (path.stat().st_size, hash_file(path)) == (record.size, record.sha256)


def test_the_probe_holds_the_trainers_plain_log_probs(worker, train_groups, tmp_path):
    groups = groups_of(train_groups)[:2]
    worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    save_state(worker, tmp_path, model_only=True, probe=groups)
    with plain_distribution(worker.trainer.policy):
        expected = compute_log_probs(
            worker.trainer.policy,
            groups,
            pixels=worker.trainer.pixels,
            temperature=1.0,
            token_budget=worker.trainer.experience_token_budget,
        )
    probe = read_probe(tmp_path / "probe")
    for rollout, log_probs in zip(probe.rollouts, [values for group in expected for values in group], strict=True):
        np.testing.assert_array_equal(rollout.log_probs, log_probs)


def test_a_model_only_state_has_no_moments_and_knows_its_place_in_the_schedule(worker, train_groups, tmp_path):
    worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)] * 2, check_agreement=False))
    save_state(worker, tmp_path, model_only=True, probe=groups_of(train_groups)[:1])
    assert not (tmp_path / "optimizer").exists()
    counters = json.loads((tmp_path / "counters.json").read_text())
    assert counters == {"policy_version": 1, "steps": 2, "steps_at_once": 2, "nonfinite_streak": 0}


def test_a_policy_that_is_evaluated_has_no_optimizer(worker, train_groups, tmp_path):
    """Its memory would be for nothing."""
    worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    save_state(worker, tmp_path, model_only=False, probe=groups_of(train_groups)[:1])
    expected = weights(worker)
    worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    worker.load("saved policy", tmp_path)
    assert worker.trainer._optimizer is None
    assert worker.policy_version == 1
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(worker).items())


def test_a_checkpoint_that_does_not_reproduce_its_probe_is_refused(worker, train_groups, tmp_path):
    save_state(worker, tmp_path, model_only=True, probe=groups_of(train_groups)[:1])
    path = tmp_path / "probe" / "probe.json"
    content = json.loads(path.read_text())
    content["items"][0]["log_probs"][0] += 0.01
    path.write_text(json.dumps(content))
    with pytest.raises(ProbeMismatch, match=r"differ by up to 0\.01"):
        worker.load("saved policy", tmp_path)


def test_a_loaded_checkpoint_gives_its_probe_to_the_bit(worker, train_groups, tmp_path):
    """Each prompt's rollouts share a tree, as when they were saved."""
    save_state(worker, tmp_path, model_only=True, probe=groups_of(train_groups)[:2])
    worker.load("saved policy", tmp_path)
    probe = read_probe(tmp_path / "probe")
    groups = probe.groups
    assert [len(group.rollouts) for group in groups] == [len(group.samples) for group in train_groups[:2]]
    found = [log_probs for group in worker.state.prober().log_probs(groups) for log_probs in group]
    assert not differences(probe, found).any()


def test_a_checkpoint_that_is_off_a_little_everywhere_is_refused(worker, train_groups, tmp_path, config, monkeypatch):
    """With the bound of a large model in bfloat16, whose rare tokens may be off by more."""
    monkeypatch.setattr(worker.trainer, "config", changed(config, {"merge.probe_tolerance": 1.0}))
    save_state(worker, tmp_path, model_only=True, probe=groups_of(train_groups)[:1])
    path = tmp_path / "probe" / "probe.json"
    content = json.loads(path.read_text())
    for item in content["items"]:
        item["log_probs"] = [value + 0.02 for value in item["log_probs"]]
    path.write_text(json.dumps(content))
    with pytest.raises(ProbeMismatch, match=r"mean 0\.02"):
        worker.load("saved policy", tmp_path)
    # Another kind of device rounds differently, so the wider bound of another implementation holds for it.
    path.write_text(json.dumps(content | {"device": "NVIDIA H200"}))
    worker.load("saved policy", tmp_path)
    # So does another number of workers.
    path.write_text(json.dumps(content | {"topology": "4 workers"}))
    worker.load("saved policy", tmp_path)
