"""What torch's allocator takes on a GPU in each phase of training, with the geometry of published models:
`python -m benchmarks.gpu_memory --output benchmarks/results/gpu_memory.json`.

It runs on a real GPU and on the pretended card (tests/pretended_card), where kernels are not executed and memory that
nothing touches takes none, so that every published model fits. The trainer is the product's own. Its weights are memory
that nobody has written to, its images and responses are made up, and of several workers only the first is there: the
collectives of the others move nothing, and leave the same tensors.

Each case is a process of its own. Measured are the peaks of `torch.cuda.max_memory_allocated`; what the allocator holds
beyond them, and what a GPU loses outside of it, is not in them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig

from benchmarks.gpu_memory_cases import PROMPT, RESPONSES, Case, cases
from benchmarks.speed.report import machine_facts
from flows.settings import FLOW_DEFAULTS
from rl_core.config.model import TinyModel
from rl_core.config.run import RunConfig
from rl_core.distributed.place import RankPlace
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.families.registry import PUBLISHED
from rl_core.families.vision import MediaInputs
from rl_core.models.pixels import PixelCache
from rl_core.models.tiny import build_tiny_model
from rl_core.planning.batches import update_token_budget
from rl_core.planning.memory_rows import GIB
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.training.host_memory import empty_on_host
from rl_core.training.objective import PolicyObjective
from rl_core.training.policy_update import PolicyUpdate
from rl_core.training.split_adamw import SplitAdamW
from rl_core.training.trainer import Trainer
from rl_core.types import Prompt, TrainGroup, TrainSample
from tasks.results.run_facts import environment_facts
from tests.rl_core.builders import groups_of, make_train_group

EXPERIENCE: Final = 4
"""Passes of the reference have so many times the tokens of an update's."""

GRID: Final = (1, 62, 64)
"""Patches of an image in time, height and width: 992 of the 1024 tokens of a prompt."""

TEXT_TOKEN: Final = 65
"""A token of text in every tokenizer."""


class FirstOfMany(Ranks):
    """The first of several ranks, the others of which are not there: they would say what it says."""

    @classmethod
    def of(cls, size: int) -> "FirstOfMany":
        """The first of `size` ranks that share the weights."""
        dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
        mesh = init_device_mesh("cuda", (size,), mesh_dim_names=("shards",))
        group = mesh.get_group("shards")
        place = RankPlace(rank=0, size=size, ranks_per_node=size, meeting="")
        return cls(place=place, shards=mesh["shards"], objects=group, checkpoint_group=group)

    def gather(self, value: Any) -> list[Any]:
        """See Ranks."""
        return [value] * self.place.size


class UnreadTrainer(Trainer):
    """A trainer whose weights nobody has read or sent."""

    def _loaded(self, load: Callable[[bool], Any], strategy: str) -> Any:
        model = load(False)
        self._place(model, strategy)
        return model


class EqualImages(PixelCache):
    """Every image has the same pixels."""

    def get(self, uids: Sequence[str]) -> list[MediaInputs]:
        """See PixelCache."""
        processor = self._processor.image_processor
        width = 3 * processor.temporal_patch_size * processor.patch_size**2
        values = torch.zeros(1, 1, dtype=torch.uint8).expand(int(np.prod(GRID)), width)
        return [MediaInputs({"pixel_values": values, "image_grid_thw": torch.tensor([GRID])}) for _ in uids]


def write_folder(model: str, folder: Path) -> None:
    """A folder with the config of a published model, and a tiny tokenizer and processor of its family."""
    fields = dict(PUBLISHED[model])
    build_tiny_model(TinyModel(type="tiny", family=fields["model_type"]), folder, corpus=["a text"], seed=0)
    tiny = json.loads((folder / "config.json").read_text())
    ids = {name: number for name, number in tiny.items() if name.endswith("_token_id")}
    if fields["model_type"] == "qwen2_5_vl":
        fields["rope_scaling"] = {"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24]}
    (folder / "config.json").write_text(AutoConfig.for_model(**fields, **ids).to_json_string())


def made_up_groups(config: RunConfig, folder: Path, *, count: int, response: int) -> list[TrainGroup]:
    """Prompts that consist of an image and few words, each with `rollout.n` responses."""
    special = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    image = int(np.prod(GRID)) // 4
    text = np.full(config.data.max_prompt_length - image - 2, TEXT_TOKEN)
    pieces = ([special.vision_start_token_id], np.full(image, special.image_token_id), [special.vision_end_token_id])
    ids = np.concatenate([*pieces, text]).astype(np.int32)

    def group(number: int) -> TrainGroup:
        uid = f"prompt-{number}"
        prompt = Prompt(
            uid=uid, data_source="made up", question="", text="", answer="1", token_ids=ids, engine_token_ids=ids,
            image_uids=(uid,),
        )  # fmt: skip
        made = make_train_group(uid, lengths=(response,) * config.rollout.n)
        samples = [_of_text(sample) for sample in made.samples]
        return TrainGroup(prompt=prompt, samples=samples)

    return [group(number) for number in range(count)]


def _of_text(sample: TrainSample) -> TrainSample:
    """The sample with a response in which no token stands for an image, and with the reference's log-probs."""
    rollout = replace(sample.rollout, response_ids=np.full_like(sample.rollout.response_ids, TEXT_TOKEN))
    return replace(sample, rollout=rollout, ref_log_probs=sample.old_log_probs)


class Peaks:
    """The peaks of torch's allocator."""

    def __init__(self) -> None:
        self.gib: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Note the peak of a `with` block."""
        torch.cuda.reset_peak_memory_stats()
        yield
        self.note(name, torch.cuda.max_memory_allocated())

    def note(self, name: str, num_bytes: int) -> None:
        """Note a number of bytes."""
        self.gib[name] = round(num_bytes / GIB, 3)


def trainer_of(case: Case, folder: Path) -> Trainer:
    """The trainer of a case's first worker, with its reference."""
    trainer = UnreadTrainer(
        case.config(),
        model_folder=folder,
        base_folder=folder,
        pixels=EqualImages(folder, SimpleNamespace()),
        total_optimizer_steps=100,
        total_critic_steps=0,
        ranks=LONE if case.workers == 1 else FirstOfMany.of(case.workers),
    )
    trainer.load_reference(folder)
    return trainer


def measured(case: Case) -> dict[str, Any]:
    """The case and its peaks in GiB."""
    config, peaks = case.config(), Peaks()
    with tempfile.TemporaryDirectory() as name, without_numbers():
        folder = Path(name)
        write_folder(case.model, folder)
        trainer = trainer_of(case, folder)
        peaks.note("weights", torch.cuda.memory_allocated())
        budget = update_token_budget(config)
        trees = budget // (PROMPT + RESPONSES * case.response)
        groups = made_up_groups(config, folder, count=EXPERIENCE * trees, response=case.response)
        two_passes = OptimizerBatch.of(groups[: 2 * trees], longest_response=config.rollout.max_response_length)
        first = trainer.update(UpdateBatch(policy=[two_passes], kl_coef=0.01, check_agreement=False))
        assert first.policy[0].outcome.applied, "the optimizer has no state before its first step"
        peaks.note("at rest", torch.cuda.memory_allocated())
        with peaks.of("pass of the reference"):
            trainer.reference_log_probs(groups_of(groups))
        with peaks.of("forward and backward passes"):
            _update(trainer).accumulate_gradient(two_passes)
        with peaks.of("optimizer step"):
            trainer.optimizer.step()
        with peaks.of("weight sync"):
            for _, weight in trainer.named_weights():  # as vLLM's loaders do: one is held until the next is there
                del weight
        peaks.note("pinned", torch.cuda.host_memory_stats()["allocated_bytes.current"])
    return asdict(case) | {"overrides": case.overrides, "gib": peaks.gib}


def _update(trainer: Trainer) -> PolicyUpdate:
    return PolicyUpdate(
        policy=trainer.policy,
        reference=None,
        objective=PolicyObjective(trainer.config.algorithm, kl_coef=0.01),
        optimizer=trainer.optimizer,
        pixels=trainer.pixels,
        config=trainer.config,
        ranks=trainer.ranks,
    )


@contextmanager
def without_numbers() -> Iterator[None]:
    """Inside the block nothing depends on numbers, which no kernel may have computed: gradients count as finite, and
    what would be offloaded is not filled with zeros, so that it takes none of the machine's memory."""
    clip = torch.nn.utils.clip_grad_norm_

    def clipped(*arguments: Any) -> torch.Tensor:
        clip(*arguments)
        return torch.zeros(())

    def untouched(optimizer: SplitAdamW, parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        make = empty_on_host if optimizer.in_host_memory else torch.empty_like
        return make(parameter, dtype=dtype)

    with (
        patch.object(torch.nn.utils, "clip_grad_norm_", clipped),
        patch.object(SplitAdamW, "_zeros", untouched),
    ):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, help="measure the case with this number in this process")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    every = list(cases())
    if arguments.only is not None:
        print(json.dumps(measured(every[arguments.only])))
        return
    facts = machine_facts("benchmarks.gpu_memory", sys.argv[1:]) | {"versions": environment_facts()}
    rows = [in_a_process_of_its_own(number) for number in range(len(every))]
    facts |= {"device": torch.cuda.get_device_name(), "rows": rows}
    if arguments.output:
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n")


def in_a_process_of_its_own(number: int) -> dict[str, Any]:
    """What `measured` finds for a case, with the allocator's settings of a run."""
    command = [sys.executable, "-m", "benchmarks.gpu_memory", "--only", str(number)]
    environment = {"PYTORCH_ALLOC_CONF": FLOW_DEFAULTS["PYTORCH_ALLOC_CONF"], **os.environ}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main()
