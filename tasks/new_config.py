"""A config for a user's own data: guessed, written out, and tried on the first rows."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_core.config.data import LocalSource
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig, experiment_name
from rl_core.config.yaml_text import dump_yaml
from rl_core.data.inspection import Inspection, inspect_data
from rl_core.data.manifest import LengthSummary
from rl_core.data.rows import Row
from rl_core.files import atomic_write_text
from rl_core.types import Prompt
from tasks.held_out import Split, find_split, set_rows_apart

_ROWS_TRIED = 64
_LONGEST_TRIED = 32_768
_REWARDS = {
    "count": "{{ content }} Reply with the number inside <answer></answer>.\n",
    "math": "{{ content }} Think inside <think></think>, then give the final answer in \\boxed{}.\n",
}

_TEMPLATE = """\
# Written by `sightline init`; every key is explained in docs/configuration.md.
experiment: {experiment}

data:
{data}

model:
{model}

reward:
  function: {reward} # or path/to/file.py:function

rollout:
  n: 8 # responses a prompt
  max_response_length: {max_response_length}

actor:
  global_batch_size: {optimizer_batch} # prompts an optimizer step
  optim: {{lr: {lr}}}

trainer:
  total_epochs: 5
  val_freq: 10
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A config that was not written yet.

    Attributes:
        inspection: What the training data looks like.
        split: Where training and held-out rows come from.
        reward: The guessed reward.
        prompt_template: Text of its Jinja file.
        model: Folder or hub name of a checkpoint; None for a tiny random model.
    """

    inspection: Inspection
    split: Split
    reward: str
    prompt_template: str
    model: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What the first rows become.

    Attributes:
        prompts: The first prompts.
        lengths: Their lengths, tokens.
        reward_problems: What the reward says to the ground truth; empty when all is well.
        scores: `overall` of each true answer, in the form that the reward expects.
    """

    prompts: Sequence[Prompt]
    lengths: LengthSummary
    reward_problems: Sequence[str]
    scores: Sequence[float]


def propose(path: Path, *, validation: Path | None, model: str | None, folder: Path) -> Proposal:
    """Look at the data and guess. `folder`: where held-out rows are set apart if the data has none.

    Raises:
        ValueError: there is nothing readable, or too little to hold rows out.
    """
    pair = (path, validation) if validation else find_split(path)
    inspection = inspect_data(pair[0] if pair else path)
    if pair:
        held_out = inspect_data(pair[1]).source
        split = Split(train=inspection.source, validation=held_out, origin=f"held-out rows are those of {pair[1]}")
    else:
        split = set_rows_apart(inspection.source, folder)
    reward = "count" if _are_counts(inspection) else "math"
    return Proposal(inspection=inspection, split=split, reward=reward, prompt_template=_REWARDS[reward], model=model)


def _are_counts(inspection: Inspection) -> bool:
    rows = [row for row in inspection.rows if isinstance(row, Row)]
    return bool(rows) and all(row.answer_text.isdecimal() and row.images for row in rows)


def write_config(proposal: Proposal, out: Path, *, max_prompt_length: int) -> RunConfig:
    """Write the prompt template and the config, and return it as a run would read it.

    Raises:
        ValueError: the config is refused, which would be a mistake of the proposal.
    """
    template = out.with_suffix(".prompt.jinja")
    atomic_write_text(template, proposal.prompt_template)
    experiment = experiment_name(out.stem, otherwise="experiment")
    text = config_text(proposal, template, experiment=experiment, max_prompt_length=max_prompt_length)
    atomic_write_text(out, text)
    return load_config(out)


def config_text(proposal: Proposal, template: Path, *, experiment: str, max_prompt_length: int) -> str:
    """The config as YAML with comments."""
    batch = _batch_size(proposal.inspection.row_count)
    tiny = proposal.model is None
    data: dict[str, Any] = {
        "train": _source(proposal.split.train),
        "validation": _source(proposal.split.validation),
        "prompt_template": str(template),
        "max_prompt_length": max_prompt_length,
        "rollout_batch_size": batch,
    }
    model: dict[str, Any] = (
        {"source": {"type": "tiny", "family": "qwen2_5_vl"}, "dtype": "float32"}
        if tiny
        else {"source": {"type": "pretrained", "path": proposal.model}}
    )
    return _TEMPLATE.format(
        experiment=experiment,
        data=_indented(data),
        model=_indented(model)
        + ("\n  # a random model, to try the pipeline; then: type: pretrained, path: ..." * tiny),
        reward=proposal.reward,
        max_response_length=64 if tiny else 1024,
        optimizer_batch=max(1, batch // 4),
        lr="5.0e-4" if tiny else "1.0e-6",
    )


def try_config(config: RunConfig) -> Trial:
    """Prepare the first rows in a folder that is thrown away, and ask the reward about their true answers.

    Raises:
        ValueError: the data cannot be used as it is.
        OSError: the model cannot be read or downloaded.
    """
    from rl_core.data.preparation import prepare_dataset
    from rl_core.data.prepared import PreparedDataset
    from rl_core.progress import SilentProgress
    from rl_core.rewards.preflight import try_on_ground_truth
    from tasks.initial_model import write_initial_model

    limited = {name: _first_rows(getattr(config.data, name)) for name in ("train", "validation")}
    data = config.data.model_copy(update={**limited, "max_prompt_length": _LONGEST_TRIED, "max_bad_share": 1.0})
    with tempfile.TemporaryDirectory() as scratch:
        model, out = Path(scratch) / "model", Path(scratch) / "data"
        model.mkdir()
        write_initial_model(config, model)
        manifest = prepare_dataset(data, model_folder=model, out=out, progress=SilentProgress())
        prompts = PreparedDataset.open(out, "train")[:8]
    trial = try_on_ground_truth(
        config.reward, prompts, target_template=None, accuracy_key=config.evaluation.accuracy_key
    )
    return Trial(
        prompts=prompts,
        lengths=manifest.splits["train"].prompt_tokens,
        reward_problems=[*trial.problems, *trial.warnings],
        scores=[score.overall for score in trial.scores if score.error is None],
    )


def roomy_length(longest: int) -> int:
    """A prompt limit a quarter above the longest prompt seen, a multiple of 64."""
    return -(-longest * 5 // (4 * 64)) * 64


def _first_rows(source: LocalSource) -> LocalSource:
    return source.model_copy(update={"limit": _ROWS_TRIED})


def _source(source: LocalSource) -> dict[str, Any]:
    return source.model_dump(mode="json", exclude_defaults=True) | {"type": "local"}


def _indented(values: dict[str, Any]) -> str:
    text = dump_yaml(values).rstrip()
    return "\n".join(f"  {line}" for line in text.splitlines())


def _batch_size(rows: int) -> int:
    """The largest power of two that gives an epoch four steps or more, at most 128."""
    batch = 1
    while batch * 2 <= min(rows // 4, 128):
        batch *= 2
    return batch
