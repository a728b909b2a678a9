"""A plan names everything that is wrong, each with the key and what to do."""

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.planning.gpu import Gpu
from rl_core.planning.rules import check_config
from rl_core.problem import PlanError, raise_if_fatal
from tasks.cache.named_files import located_config

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
GSPO = "{type: gspo_token, clip_ratio_low: 3.0e-4, clip_ratio_high: 4.0e-4}"


def wheres(config: RunConfig) -> list[str]:
    return [problem.where for problem in check_config(config)]


def test_the_shipped_quickstart_has_no_problem(monkeypatch):
    monkeypatch.chdir(QUICKSTART.parents[1])
    assert check_config(located_config(load_config(QUICKSTART))) == []


@pytest.mark.parametrize(
    ("overrides", "where", "words"),
    [
        (["trainer.val_freq=0"], "trainer.val_freq", "set -1 to never validate"),
        (["merge.checkpoint=best"], "merge.checkpoint", "never validates"),
        (
            ["data.rollout_batch_size=12"],
            "data.rollout_batch_size",
            "a step of 12 prompts does not split into optimizer steps of 8 (actor.global_batch_size): 4 are left over",
        ),
        (["data.rollout_batch_size=12"], "data.rollout_batch_size", "set it to a multiple of 8, or actor.global_batch"),
        (["data.rollout_batch_size=104"], "data.rollout_batch_size", "more than the 96 training rows"),
        (["data.min_pixels=9000", "data.max_pixels=8000"], "data.min_pixels", "above data.max_pixels 8000"),
        (["data.train.min_objects=7"], "data.train.min_objects", "above max_objects 6"),
        (["model.dtype=bfloat16", "merge.probe_tolerance=1e-4"], "merge.probe_tolerance", "set it to 1,"),
        (["model.dtype=bfloat16", "rollout.max_log_prob_gap=1e-4"], "rollout.max_log_prob_gap", "set it to 5,"),
        (["actor.optim.betas=[0.9, 1.0]"], "actor.optim.betas", "are no decay rates"),
        (
            ["actor.optim={lr_warmup_steps: 2, lr_warmup_ratio: 0.1}"],
            "actor.optim.lr_warmup_ratio",
            "two lengths of the same warm-up",
        ),
        (["evaluation.modes=[greedy, greedy]"], "evaluation.modes", "at least one pass"),
        (["rollout.n=1"], "rollout.n", "set it to 2 or more"),
        (["algorithm.advantage.type=gae"], "critic", "add `critic: {global_batch_size: 8}`"),
        (["critic={global_batch_size: 8}"], "critic", "algorithm.advantage.type to gae"),
        (["trainer.critic_warmup=2"], "trainer.critic_warmup", "no critic to warm up"),
        (
            ["algorithm.advantage.type=gae", "critic={global_batch_size: 8}", "trainer.critic_warmup=14"],
            "trainer.critic_warmup",
            "the run has 12 steps",
        ),
        (
            ["algorithm.advantage.type=gae", "critic={global_batch_size: 6}"],
            "data.rollout_batch_size",
            "critic.global_batch_size to a divisor of it",
        ),
        (
            ["algorithm.online_filtering={filter_low: 1.0}"],
            "algorithm.online_filtering.filter_low",
            "below filter_high",
        ),
        (
            ["algorithm.online_filtering={surplus: keep}", "algorithm.old_log_probs=recompute"],
            "algorithm.online_filtering.surplus",
            "algorithm.old_log_probs to engine",
        ),
        (["algorithm.correction={type: tis}"], "algorithm.correction", "old_log_probs to recompute"),
        (
            ["rollout.staleness=1", "algorithm.old_log_probs=recompute"],
            "rollout.staleness",
            "set algorithm.old_log_probs to engine, add algorithm.correction",
        ),
        (
            ["rollout.staleness=1", "algorithm.advantage.type=gae", "critic={global_batch_size: 8}"],
            "rollout.staleness",
            "would learn the returns of earlier weights",
        ),
        (
            ["rollout.staleness=1", "algorithm.advantage.type=remax"],
            "rollout.staleness",
            "which no record of a batch holds",
        ),
        (
            ["algorithm.kl={coef: 0.01, adaptive: {horizon: 127}}"],
            "algorithm.kl.adaptive.horizon",
            "a step has 128 responses (data.rollout_batch_size 16 x rollout.n 8), more than the horizon of 127",
        ),
        (["tracking.mlflow_uri=file:///tmp/mlruns"], "tracking.mlflow_uri", "no longer keeps runs in folders"),
        (["merge.push=model"], "merge.push", "owner/name"),
        (["data.prompt_template=gone.jinja"], "data.prompt_template", "there is no file gone.jinja"),
        (["reward.function=gone.py:score"], "reward.function", "there is no file gone.py"),
        (
            ["data.train={type: local, path: gone.parquet}"],
            "data.train.path",
            "there is no file or folder gone.parquet",
        ),
        (["model.source={type: pretrained, path: /gone/model}"], "model.source", "there is no folder /gone/model"),
        (["rollout.max_response_length=40000"], "rollout.max_response_length", "more than the model's 32768 positions"),
        (
            ["rollout.cpu_kv_cache_gib=100000", "rollout.max_num_seqs=500000000"],
            "memory of this machine",
            "largest part is engine KV cache",
        ),
    ],
)
def test_a_problem_names_the_key_and_the_change(configure, overrides, where, words):
    (problem,) = check_config(configure(*overrides))
    assert problem.where == where
    assert words in str(problem)
    assert problem.fatal


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("trainer.save_model_only=true", "trainer.save_model_only"),
        ("cold_start={steps: 5, optim: {lr_warmup_steps: 5}}", "cold_start.optim.lr_warmup_steps"),
        ("actor.optim.lr_warmup_steps=1000", "actor.optim.lr_warmup_steps"),
        ("algorithm.loss.type=gspo", "algorithm.loss.clip_ratio_high"),
        ("algorithm.kl={coef: 0.01, penalty: kl}", "algorithm.kl.penalty"),
    ],
)
def test_settings_that_work_but_may_not_be_meant_are_warnings(configure, override, where):
    (problem,) = check_config(configure(override))
    assert (problem.where, problem.fatal) == (where, False)
    raise_if_fatal([problem])


def test_gspo_in_bfloat16_is_advised_to_take_the_trainers_log_probs_as_old_ones(configure):
    loss = f"algorithm.loss={GSPO}"
    (problem,) = check_config(configure(loss, "model.dtype=bfloat16"))
    assert (problem.where, problem.fatal) == ("algorithm.old_log_probs", False)
    assert check_config(configure(loss, "model.dtype=bfloat16", "algorithm.old_log_probs=recompute")) == []
    assert check_config(configure(loss, "model.dtype=float32")) == []


def test_a_run_of_any_length_is_planned_at_once(configure):
    long = ["trainer.total_epochs=99999999999", "trainer.val_freq=7", "trainer.save_freq=11", "merge.checkpoint=best"]
    assert check_config(configure(*long)) == []


def test_everything_is_reported_at_once(configure):
    config = configure(
        "trainer.val_freq=0", "data.rollout_batch_size=12", "data.prompt_template=gone.jinja", "evaluation.modes=[]"
    )
    with pytest.raises(PlanError) as refusal:
        raise_if_fatal(check_config(config))
    message = str(refusal.value).splitlines()
    assert message[0] == "4 problem(s) before the start"
    assert {line.split(":")[0].strip() for line in message[1:]} == {
        "trainer.val_freq",
        "data.rollout_batch_size",
        "data.prompt_template",
        "evaluation.modes",
    }


def test_a_missing_media_folder_is_named(configure, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    source = json.dumps({"type": "local", "path": str(rows), "media_dir": str(tmp_path / "gone")})
    assert wheres(configure(f"data.train={source}")) == ["data.train.media_dir"]


def test_the_parts_of_a_mixture_are_looked_at_one_by_one(configure, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    parts = {"here": {"type": "local", "path": str(rows)}, "gone": {"type": "local", "path": str(tmp_path / "gone")}}
    mixture = json.dumps({"type": "mixture", "sources": parts})
    held_out = json.dumps({"type": "mixture", "sources": {"same": parts["here"]}})
    found = wheres(configure(f"data.train={mixture}", f"data.validation={held_out}"))
    assert found == ["data.train.sources.gone.path"]


def test_a_checkpoint_folder_of_an_unknown_architecture_is_named(configure, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    (problem,) = check_config(configure(f"model.source={{type: pretrained, path: {tmp_path}}}"))
    assert "architecture 'mamba'" in problem.what


def test_offline_what_the_cache_lacks_is_named(configure, monkeypatch, tmp_path):
    """HF_HUB_OFFLINE, which the hub's library reads when it is imported. Online, the cache is not asked."""
    sources = ("model.source={type: pretrained, path: owner/model}", "data.train={type: hub, name: owner/rows@train}")
    config = configure(*sources, "merge.push=owner/trained")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert wheres(config) == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert wheres(config) == ["model.source.path", "data.train.name", "merge.push"]
    for name in ("models--owner--model", "datasets--owner--rows"):
        (tmp_path / name).mkdir()
    assert wheres(config) == ["merge.push"]


def test_rules_about_a_gpu_of_unknown_memory_are_still_checked(configure):
    override = ["model.attention=flash", "rollout.max_response_length=40000"]
    problems = check_config(configure(*override), gpu=Gpu(memory_gib=None))
    found = {problem.where: problem for problem in problems}
    assert "there is no NVIDIA GPU" not in found["model.attention"].what
    assert "positions" in found["rollout.max_response_length"].what
    assert not found["memory of the GPU"].fatal
