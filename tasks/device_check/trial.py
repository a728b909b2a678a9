"""The small training that the checks run: a tiny Qwen2.5-VL that counts objects in rendered scenes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from rl_core.config.run import RunConfig
from rl_core.data.prepared import PreparedDataset
from rl_core.device import computing_device
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.types import Prompt
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.opening import open_workers
from rl_core.workers.protocol import WorkerGroup
from tasks.preparation import prepare_run

Dtype = Literal["float32", "bfloat16"]

STEPS = 3
PROMPTS, RESPONSES = 8, 4
LONGEST_RESPONSE = 48


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A prepared run, whose folder has the initial model and the rows."""

    config: RunConfig
    run: RunDirectory

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts of one training step, each with an image."""
        return PreparedDataset.open(self.run.data, "train")[: self.config.data.rollout_batch_size]

    def with_sections(self, **sections: Mapping[str, Any]) -> Self:
        """The same model and rows with other keys of some sections of the config."""
        fields = self.config.model_dump()
        changed = {name: fields[name] | values for name, values in sections.items()}
        return replace(self, config=RunConfig.model_validate(fields | changed))

    @contextmanager
    def workers(self) -> Iterator[WorkerGroup]:
        """The workers of the run, closed at the end of the `with` block."""
        datasets = PreparedDataset.open_all(self.run.data)
        folders = WorkerFolders.of_run(self.config, self.run, datasets)
        opening = Opening(config=self.config, folders=folders, total_optimizer_steps=STEPS)
        workers = open_workers(opening, progress=SilentProgress())
        try:
            yield workers
        finally:
            workers.close()


def prepare_trial(folder: Path, dtype: Dtype, **sections: Mapping[str, Any]) -> Trial:
    """Write the tiny model and the rows into a new folder."""
    trial = Trial(config=trial_config(dtype), run=RunDirectory(folder)).with_sections(**sections)
    prepare_run(trial.config, trial.run, progress=SilentProgress())
    return trial


def trial_config(dtype: Dtype) -> RunConfig:
    """Three steps of eight prompts with four responses, validated and saved after each step."""
    scenes = {"type": "counting", "size": STEPS * PROMPTS, "object_size": [0.13, 0.13], "lighting": [1.0, 1.0]}
    return RunConfig.model_validate(
        {
            "experiment": "device-check",
            "data": {
                "train": scenes | {"scene_seed": 1},
                "validation": scenes | {"scene_seed": 2, "size": PROMPTS},
                "max_prompt_length": 64,
                "rollout_batch_size": PROMPTS,
            },
            "model": {"source": {"type": "tiny"}, "dtype": dtype},
            "reward": {"function": "length", "kwargs": {"target_length": 2, "max_length": LONGEST_RESPONSE}},
            "rollout": {"n": RESPONSES, "max_response_length": LONGEST_RESPONSE},
            "actor": {"global_batch_size": PROMPTS // 2},
            "trainer": {"max_steps": STEPS, "val_freq": 1, "save_freq": 1, "save_limit": STEPS},
            "evaluation": {"accuracy_key": "overall"},
        }
    )


def on_gpu() -> bool:
    """Whether the workers compute on a GPU."""
    return computing_device().type == "cuda"
