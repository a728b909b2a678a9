"""Writes a config for a user's own data: its keys are guessed, and the config is tried on the first rows."""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rl_core.config.loading import config_of, load_config
from rl_core.config.model import PretrainedModel
from rl_core.config.run import RunConfig, experiment_name
from rl_core.config.yaml_text import dump_yaml
from rl_core.data.column_guesses import NamedColumns
from rl_core.data.inspection import Inspection, inspect_data
from rl_core.data.manifest import LengthSummary
from rl_core.files import atomic_write_text
from rl_core.planning.model_sizes import config_fields
from rl_core.rewards.trial import GroundTruthTrial
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource
from rl_core.sources.rows import BadRow, Row
from rl_core.types import Prompt
from tasks.cache.named_files import located_config
from tasks.new_config.data_lookup import find_pair, source_of, training_data
from tasks.new_config.held_out import Shared, Split, set_rows_apart, take_pair

_ROWS_TRIED = 64
_LONGEST_TRIED = 32_768
_SHOWN_PROMPTS = 8
_REWARDS = {
    "count": "{{ content }} Reply with the number inside <answer></answer>.\n",
    "choice": "{{ content }} Reply with the letter of the right choice inside <answer></answer>.\n",
    "r1v": "{{ content }} Think inside <think></think>, then give the answer inside <answer></answer>.\n",
    "math": "{{ content }} Think inside <think></think>, then give the final answer in \\boxed{}.\n",
}

_TEMPLATE = """\
# Written by `sightline init`; every key is explained in docs/configuration.md.
experiment: {experiment}

data:
{data}

model:
{model}
{cold_start}
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


_COLD_START = """
cold_start: # for the random model alone: no response of it would have a form that the reward reads
  target_template: {target}
  steps: 60
  batch_size: {batch}
  optim: {{lr: 1.0e-3, lr_warmup_steps: 10}}
"""
_TAGGED = "<answer>{{ answer }}</answer>"
_TARGETS = {
    "count": _TAGGED,
    "choice": _TAGGED,
    "r1v": f"<think></think>{_TAGGED}",
    "math": "<think></think>\\boxed{{ '{' ~ answer ~ '}' }}",
}

_CHOICE = re.compile(r"\(?[A-Z]\)?[.:]?|[A-Z](,[A-Z])+")

_SHOWN_OPTIONS = """{{ content }}
{% for letter, text in options.items() %}{{ letter }}. {{ text }}
{% endfor %}"""


@dataclass(frozen=True, kw_only=True, slots=True)
class InitOptions:
    """What a user asked for besides the data; where it is None, it is guessed. Without a model (folder or hub name of a
    checkpoint), it is a tiny random one. Relative paths of images and videos start from `media_dir`. `shared`
    says what becomes of rows that share something across the split."""

    validation: str | None = None
    model: str | None = None
    columns: NamedColumns = field(default_factory=NamedColumns)
    media_dir: str | None = None
    shared: Shared | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A config that is not written yet: what the training data looks like, the rows, the name of the guessed reward,
    the text of the prompt template (Jinja), and a checkpoint (None: a tiny random model)."""

    inspection: Inspection
    split: Split
    reward: str
    prompt_template: str
    model: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedConfig:
    """The first rows as prompts with their lengths in tokens, and what the reward gives for right and wrong responses.
    `rejected` has the unusable ones of the first rows by split."""

    prompts: Sequence[Prompt]
    lengths: LengthSummary
    rejected: Mapping[str, Sequence[BadRow]]
    reward: GroundTruthTrial


def propose(data: str, options: InitOptions, *, folder: Path) -> Proposal:
    """Look at the data and guess a config. If the data has no held-out rows, some are set apart in `folder`. Raises
    ValueError where nothing can be read, or there are too few rows to hold some out; the message says why."""
    named = options.columns
    pair = (data, options.validation) if options.validation else find_pair(data)
    inspection = inspect_data(source_of(pair[0] if pair else training_data(data), options.media_dir), named)
    if inspection.unused and not inspection.has_media and _has_eyes(options.model):
        raise ValueError(
            f"no row has an image, and the model takes images: {'; '.join(inspection.unused)}; correct the column, "
            "name another one with --image-key, or say --image-key '' if no question has an image"
        )
    if pair:
        split = take_pair(
            inspection.source,
            _counted_alike(
                inspect_data(source_of(pair[1], options.media_dir), named).source, inspection.source.columns
            ),
            origin=f"held-out rows come from {pair[1]}",
            shared=options.shared,
            folder=folder,
        )
    else:
        split = set_rows_apart(inspection.source, folder)
    reward = _guess_reward(inspection, split.sample)
    template = _prompt_for(reward, split.sample)
    return Proposal(inspection=inspection, split=split, reward=reward, prompt_template=template, model=options.model)


def config_of_rows(
    data: str,
    *,
    media_dir: str | None,
    reward: str | None,
    model: str,
    folder: Path,
    overrides: Sequence[str],
) -> tuple[Inspection, RunConfig]:
    """The config by which a model answers all rows of `data`. Columns and prompt, and without a `reward` the reward
    too, are guessed as for a new config; the prompt template is written into `folder`. Raises ValueError where nothing
    can be read, or an override is refused."""
    inspection = inspect_data(source_of(data, media_dir))
    rows = [row for row in inspection.source.first_rows(_ROWS_TRIED).open() if isinstance(row, Row)]
    reward = reward or _guess_reward(inspection, rows)
    template = folder / "prompt.jinja"
    atomic_write_text(template, _prompt_for(reward, rows))
    source = _source(inspection.source)
    tree = {
        "experiment": experiment_name(Path(data).stem, otherwise="rows"),
        "data": {
            "train": source,
            "validation": source,
            "prompt_template": str(template),
            "max_prompt_length": _LONGEST_TRIED,
        },
        "model": {"source": {"type": "pretrained", "path": model}},
        "reward": {"function": reward},
        "rollout": {"max_response_length": 1024},
    }
    return inspection, config_of(tree, overrides, data)


def _counted_alike(held_out: LocalSource | HubSource, trained: Columns) -> LocalSource | HubSource:
    """The held-out rows, whose answers name options as those of the training rows do; a few rows may fit several
    ways."""
    if held_out.columns.options_key != trained.options_key:
        return held_out
    columns = held_out.columns.model_copy(update={"answer_as": trained.answer_as})
    return held_out.model_copy(update={"columns": columns})


def _has_eyes(model: str | None) -> bool:
    """Whether a model takes images, as far as that is known without a download; a tiny one does."""
    if model is None:
        return True
    fields = config_fields(PretrainedModel(type="pretrained", path=model))
    return fields is None or "vision_config" in fields


def _prompt_for(reward: str, rows: Sequence[Row]) -> str:
    """The prompt template that asks for answers as a reward reads them, of options too where no question names them."""
    template = _REWARDS.get(reward, "{{ content }} \n")
    if any(text not in row.question for row in rows for text in row.options.values()):
        template = template.replace("{{ content }} ", _SHOWN_OPTIONS)
    return template


def _guess_reward(inspection: Inspection, rows: Sequence[Row]) -> str:
    if inspection.kind == "imagefolder":
        return "r1v"
    if rows and all(row.answer_text.isdecimal() and row.images for row in rows):
        return "count"
    return "choice" if rows and all(_CHOICE.fullmatch(row.answer_text) for row in rows) else "math"


def write_config(proposal: Proposal, out: Path, *, max_prompt_length: int) -> RunConfig:
    """Write the prompt template and the config, and return it as a run would read it, with paths that can be read from
    here. Raises ValueError where the config is refused, which would be an error in the proposal."""
    template = out.with_suffix(".prompt.jinja")
    atomic_write_text(template, proposal.prompt_template)
    experiment = experiment_name(out.stem, otherwise="experiment")
    text = _config_text(proposal, template, experiment=experiment, max_prompt_length=max_prompt_length)
    atomic_write_text(out, text)
    return located_config(load_config(out))


def _config_text(proposal: Proposal, template: Path, *, experiment: str, max_prompt_length: int) -> str:
    folder, path = template.parent, proposal.model
    if path is not None and Path(path).is_dir():
        path = _path_from(folder, path)
    tiny = proposal.model is None
    # A trial of the pipeline on a CPU shows its first steps soon.
    batch, most = 1, min(proposal.inspection.row_count // 4, 32 if tiny else 128)
    while batch * 2 <= most:  # a power of two, with which an epoch has at least four steps
        batch *= 2
    data: dict[str, Any] = {
        "train": _source(proposal.split.train, folder),
        "validation": _source(proposal.split.validation, folder),
        "prompt_template": template.name,
        "max_prompt_length": max_prompt_length,
        "rollout_batch_size": batch,
    }
    model: dict[str, Any] = (
        {"source": {"type": "tiny", "family": "qwen2_5_vl"}, "dtype": "float32"}
        if tiny
        else {"source": {"type": "pretrained", "path": path}}
    )
    return _TEMPLATE.format(
        experiment=experiment,
        data=_indented(data),
        model=_indented(model)
        + ("\n  # a random model, to try the pipeline; then: type: pretrained, path: ..., without cold_start" * tiny),
        cold_start=_COLD_START.format(target=json.dumps(_TARGETS[proposal.reward]), batch=batch) if tiny else "",
        reward=proposal.reward,
        max_response_length=64 if tiny else 1024,
        optimizer_batch=max(1, batch // 4),
        lr="5.0e-4" if tiny else "1.0e-6",
    )


def try_config(config: RunConfig) -> TriedConfig:
    """Prepare the first rows in a temporary folder, and try the reward on true and wrong answers. Raises ValueError
    where the data cannot be used. Raises OSError where the model cannot be read or downloaded."""
    import transformers

    from rl_core.data.preparation import prepare_dataset
    from rl_core.data.prepared import REJECTED_FILE, PreparedDataset
    from rl_core.progress import SilentProgress
    from tasks.planning.trials import try_reward
    from tasks.preparation import write_initial_model

    sources = {"train": config.data.train, "validation": config.data.validation}
    limited = {name: source.first_rows(_ROWS_TRIED) for name, source in sources.items()}
    data = config.data.model_copy(update={**limited, "max_prompt_length": _LONGEST_TRIED, "max_bad_share": 1.0})
    with tempfile.TemporaryDirectory() as scratch:
        model, out = Path(scratch) / "model", Path(scratch) / "data"
        model.mkdir()
        transformers.utils.logging.disable_progress_bar()
        write_initial_model(config, model)
        manifest = prepare_dataset(data, model_folder=model, out=out, progress=SilentProgress())
        prompts = PreparedDataset.open(out, "train")[:_SHOWN_PROMPTS]
        rejected = _read_rejected(out / REJECTED_FILE)
    return TriedConfig(
        prompts=prompts,
        lengths=manifest.splits["train"].prompt_tokens,
        rejected=rejected,
        reward=try_reward(config),
    )


def _read_rejected(path: Path) -> dict[str, list[BadRow]]:
    """[split] -> rows that the preparation rejected."""
    rejected: dict[str, list[BadRow]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        row = BadRow(**{key: record[key] for key in ("index", "column", "reason", "origin")})
        rejected.setdefault(record["split"], []).append(row)
    return rejected


def write_rejected(proposal: Proposal, folder: Path) -> Path | None:
    """Write every unusable row to a file in `folder`; None where there is no unusable row."""
    lines = [
        json.dumps({"data": unusable.data, **asdict(row)}, ensure_ascii=False)
        for unusable in proposal.split.unusable
        for row in unusable.rows
    ]
    if not lines:
        return None
    path = folder / "rejected.jsonl"
    atomic_write_text(path, "\n".join(lines) + "\n")
    return path


def roomy_length(longest: int) -> int:
    """A limit for prompts: a quarter above the longest prompt seen, rounded up to a multiple of 64."""
    return -(-longest * 5 // (4 * 64)) * 64


def _source(source: LocalSource | HubSource, folder: Path = Path()) -> dict[str, Any]:
    """The settings of a source, whose paths start from the folder of the config."""
    paths = {key: _path_from(folder, value) for key in ("path", "media_dir") if (value := getattr(source, key, None))}
    return {"type": source.type, **source.model_dump(mode="json", exclude_defaults=True), **paths}


def _path_from(folder: Path, path: str) -> str:
    is_same = folder.resolve() == Path.cwd()
    return path if is_same or Path(path).is_absolute() else os.path.relpath(Path(path).resolve(), folder.resolve())


def _indented(values: dict[str, Any]) -> str:
    text = dump_yaml(values).rstrip()
    return "\n".join(f"  {line}" for line in text.splitlines())
