"""Starts the product's engine on the pretended card, and says what vLLM chose and what a sleep loses.

`python -m tests.pretended_card.engine FOLDER '{"dtype": ..., "eager": ...}'` prints one JSON object, read by
test_engine.py.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from pretended_card_computing import host_view

from flows.settings import set_flow_defaults
from rl_core.config.run import RunConfig
from rl_core.data.prepared import PreparedDataset
from rl_core.models.loading import banned_token_ids
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.types import Sampling
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from tasks.device_check.check import Setting
from tasks.device_check.trial import Trial, prepare_trial

UNDEFINED_BYTE = 0xCB
ROUNDS, TOKENS = 3, 4


def witness(folder: Path, *, dtype: str, eager: bool) -> dict[str, Any]:
    """What was chosen at the start, and what each of three rounds of sleep, wake and generation found."""
    trial = prepare_trial(Setting(folder=folder), dtype)  # type: ignore[arg-type]
    config = _config(trial.config, eager=eager)
    trial = Trial(config=config, run=trial.run)
    folders = WorkerFolders.of_run(config, trial.run, PreparedDataset.open_all(trial.run.data))
    worker = LocalWorker(Opening(config=config, folders=folders, total_optimizer_steps=1))
    banned = set(banned_token_ids(folders.model))
    rounds = []
    for number in range(ROUNDS):
        worker.wake()
        engine = worker.generator.engine
        undefined = [] if number == 0 else sorted(_undefined(engine))
        prompts = trial.prompts if number == 0 else trial.prompts[:1]  # a small batch after each wake
        requests = requests_for(prompts, 2, run_seed=1, step=1)
        groups = collect_groups(prompts, worker.generate(requests, Sampling(temperature=1.0, max_tokens=TOKENS)), 2)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        sampled = {int(token) for rollout in rollouts for token in rollout.response_ids}
        rounds.append(
            {
                "responses": len(rollouts),
                "banned": sorted(sampled & banned),
                "undefined": undefined,
                "free_awake": torch.cuda.mem_get_info()[0],
            }
        )
        chosen = _chosen(engine)
        worker.sleep()
        rounds[-1]["free_asleep"] = torch.cuda.mem_get_info()[0]
        worker.usage()  # forgets the peaks of generation
        (trained,) = worker.compute("old_log_probs", [groups])
        gaps = [
            abs(a.log_probs - b).max()
            for group, own in zip(groups, trained, strict=True)
            for a, b in zip(group.rollouts, own, strict=True)
        ]
        rounds[-1]["largest_gap"] = float(max(gaps))
        rounds[-1]["update_bytes"] = worker.usage().together["update_gpu_gib"] * 2**30

    worker.close()
    return {"chosen": chosen, "rounds": rounds}


def _config(config: RunConfig, *, eager: bool) -> RunConfig:
    rollout = config.rollout.model_copy(
        update={"enforce_eager": eager, "max_response_length": TOKENS, "gpu_memory_utilization": 0.4}
    )
    return config.model_copy(update={"rollout": rollout})


def _chosen(engine: VllmEngine) -> dict[str, Any]:
    """What vLLM chose."""
    core = engine._engine.engine_core.engine_core
    runner = core.model_executor.driver_worker.worker.model_runner
    vllm = engine._engine.vllm_config
    layers = vllm.compilation_config.static_forward_context.values()
    return {
        "runner": type(runner).__module__,
        "executor": type(core.model_executor).__name__,
        "attention": sorted({layer.attn_backend.get_name() for layer in layers if hasattr(layer, "attn_backend")}),
        "graphs": str(vllm.compilation_config.cudagraph_mode),
        "async_scheduling": vllm.scheduler_config.async_scheduling,
        "head_dtype": str(vllm.model_config.head_dtype),
    }


def _undefined(engine: VllmEngine) -> Iterator[str]:
    """Tensors of vLLM's worker that hold memory which was mapped again and not written since, the cache apart."""
    worker = engine._engine.engine_core.engine_core.model_executor.driver_worker.worker
    for name, tensor in _tensors(worker, "worker", seen=set(), depth=8):
        if "kv_cache" not in name and bool((host_view(tensor).reshape(-1).view(torch.uint8) == UNDEFINED_BYTE).all()):
            yield name


def _tensors(value: Any, name: str, *, seen: set[int], depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Every contiguous tensor on the card that an object of vLLM leads to, with the way to it."""
    if depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.device.type == "cuda" and value.numel() and value.is_contiguous():
            yield name, value.detach()
        return
    for key, child in _children(value):
        yield from _tensors(child, f"{name}{key}", seen=seen, depth=depth - 1)


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"[{key!r}]", child) for key, child in value.items()]
    if isinstance(value, list | tuple):
        return [(f"[{at}]", child) for at, child in enumerate(value)]
    if isinstance(value, torch.nn.Module):
        return [
            (f".{key}", child)
            for part in (value._parameters, value._buffers, value._modules, vars(value))
            for key, child in part.items()
        ]
    if type(value).__module__.startswith("vllm") and hasattr(value, "__dict__"):
        return [(f".{key}", child) for key, child in vars(value).items()]
    return []


if __name__ == "__main__":
    set_flow_defaults()
    print(json.dumps(witness(Path(sys.argv[1]), **json.loads(sys.argv[2]))))  # noqa: T201
