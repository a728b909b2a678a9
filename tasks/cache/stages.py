"""The stages of a run, what each of them depends on, and the digest of it.

See docs/architecture.md, "The run directory is the truth".

A stage's digest covers what is asked for: the parts of the config that the stage reads, the digests of the stages
before it, and the bytes of the files that the config names. The software that made the stage is recorded separately
(tasks.cache.software).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from rl_core.config.data import ARRANGING
from rl_core.config.key_kinds import Tree, dotted, measured_recipe_of, recipe_of
from rl_core.config.run import RunConfig
from rl_core.digests import digest_of
from rl_core.user_code.function import file_named
from rl_core.wording import first_of
from tasks.cache.amendments import Amendments, amended_digest, kept_digest
from tasks.cache.named_files import NamedFiles, located_config

Parts = Mapping[str, str]
"""[name of a part, as a user knows it: "actor.optim.lr", "rewards/count.py"] -> hash of its value."""

_UPSTREAM = "what comes before: "
_PARTS_OF_STAGES = {"training-rows": "prepare"}
"""[part of a stage] -> the stage that makes it."""


def parts_of(depends_on: Mapping[str, Any], *, after: Mapping[str, str]) -> dict[str, str]:
    """The hash of each part that a stage's digest covers, the digests of the stages before it included."""
    parts = {_name(path): digest_of(value) for path, value in _leaves(depends_on, ())}
    upstream = {f"{_UPSTREAM}{name}": digest for name, digest in after.items()}
    return {**parts, **upstream}


def stages_before(parts: Parts) -> list[str]:
    """The stages whose results a stage of these parts reads; `training` stands for its last epoch."""
    names = [name.removeprefix(_UPSTREAM) for name in parts if name.startswith(_UPSTREAM)]
    return sorted({_PARTS_OF_STAGES.get(name, name) for name in names})


def changed_parts(before: Parts, now: Parts) -> list[str]:
    """The parts that have changed; of the stages before only where no part of the stage itself has."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return [name for name in names if not name.startswith(_UPSTREAM)] or names


def what_changed(before: Parts, now: Parts) -> str:
    """The same in words."""
    return f"{first_of(changed_parts(before, now))} changed"


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _leaves(part, (*path, str(name)))
    else:
        yield path, value


def _name(path: tuple[str, ...]) -> str:
    match path:
        case ("reward", "code", function, part) | ("code", function, part):
            own_file = file_named(function)
            return part if own_file is None else (Path(own_file).parent / part).as_posix()
        case ("reward", "reward", *keys):
            return ".".join(("reward", *keys))
        case (words, *_) if words == FOLLOWED_LENGTH:
            return words
    return ".".join(path)


OWN_STAGES: Final = frozenset({"model-card", "push", "report"})
"""Stages that describe their own run, so that they cannot be taken over from another one."""

_OF_NO_EPOCH: Final = ("training", "length")
"""The part of `training` that decides how many epochs there are, and on which no single epoch depends."""

FOLLOWED_LENGTH: Final = "the length of the run, which the learning rate follows"
"""The part of `training` with that length."""

_BEFORE_TRAINING: Final = ("prepare", "cold-start")

_HELD_OUT: Final = "the rows of data.validation"
_HELD_OUT_TOOLS: Final = "evaluation.tools"

_TRAINED_PART: Final = ("freeze_vision_tower", "lora")
"""Keys of `model` that only reinforcement learning uses, and not the cold start."""


Chain = Sequence[tuple[str, str]]
"""Name and digest of every epoch's stage, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage of a run. Stages of one kind ("prepare", "train", "evaluate", ...) are made by the same code. `after`
    are the stages whose results it reads; `depends_on` is everything else that its result depends on, JSON values."""

    name: str
    kind: str
    after: tuple[str, ...]
    depends_on: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigStages:
    """A config with the digests of its stages, for which the files that it names were read once. `config` is the
    resolved config as it was written, which is shown, named and hashed; `located` has every path as it can be read from
    here, and is what the stages use. `parts` are the parts that the digest of a stage covers, and
    `amendments` the changes with which the training of the run went on."""

    config: RunConfig
    located: RunConfig
    files: NamedFiles
    amendments: Amendments
    digests: Mapping[str, str]
    parts: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, config: RunConfig, files: NamedFiles, amendments: Amendments = ()) -> Self:
        """Read every file that the config names, the data too. Raises ValueError where one cannot be read."""
        digests = stage_digests(config, files, amendments)
        located, parts = located_config(config, files), stage_parts(config, digests, files)
        return cls(config=config, located=located, files=files, amendments=amendments, digests=digests, parts=parts)

    def epochs(self, count: int) -> Chain:
        """Name and digest of the stages of the first so many epochs."""
        return epoch_chain(self.config, self.digests, epochs=count, files=self.files, amendments=self.amendments)


def epoch_stage(epoch: int) -> str:
    """Name of the stage that trains `epoch`, counted from 1."""
    return f"train-epoch-{epoch:03d}"


def kind_of(stage: str) -> str:
    """The kind of a stage by its name; `training` is all epochs together."""
    if stage == "training" or stage.startswith("train-epoch-"):
        return "train"
    return "evaluate" if stage.startswith("evaluate-") else stage


def run_name(config: RunConfig, *, tag: str | None = None) -> str:
    """`<experiment>-<digest of the recipe>[-<tag>]`."""
    return "-".join(part for part in (config.experiment, config_digest(config), tag) if part)


def config_digest(config: RunConfig) -> str:
    """Digest of the recipe: of every key that makes another run (rl_core.config.key_kinds)."""
    return digest_of(recipe_of(config))


def experiment_digest(config: RunConfig) -> str:
    """Digest of the config without the seed: runs with equal ones, of equal length, repeat one experiment."""
    return digest_of({key: value for key, value in measured_recipe_of(config).items() if key != "seed"})


def dotted_settings(config: RunConfig) -> dict[str, Any]:
    """[dotted key] -> value of each key on which a run's results depend."""
    return dict(dotted(measured_recipe_of(config)))


def protocol_digest(config: RunConfig, files: NamedFiles | None = None) -> str:
    """Digest of how held-out rows are answered and scored; runs with equal ones can be compared item by item."""
    parts = _evaluation_parts(config, recipe_of(config), files or NamedFiles(paths_from=config.paths_from))
    evaluation = {key: value for key, value in parts["evaluation"].items() if key != "categories"}
    return digest_of({**parts, "evaluation": evaluation, "seed": None})


def stage_digests(config: RunConfig, files: NamedFiles | None = None, amendments: Amendments = ()) -> dict[str, str]:
    """The digest of every stage, in the order in which they run.

    Two names are not stages themselves: `training-rows` is the preparation without the held-out rows, and `training`
    stands for all epochs together. `amendments` are the changes with which the training of the run went on. Raises
    ValueError where a data source or a file that the config names cannot be read.
    """
    digests: dict[str, str] = {}
    for stage in _stages_of(config, files or NamedFiles(paths_from=config.paths_from)):
        digest = kept_digest(amendments, stage.name) or _digest(stage, digests)
        digests[stage.name] = amended_digest(digest, amendments) if stage.name == "training" else digest
    return digests


def stage_parts(
    config: RunConfig, digests: Mapping[str, str], files: NamedFiles | None = None
) -> dict[str, dict[str, str]]:
    """[stage] -> the parts that its digest covers; for `training`, the parts that the digest of every epoch covers."""
    parts = {}
    for stage in _stages_of(config, files or NamedFiles(paths_from=config.paths_from)):
        depends_on = {name: part for name, part in stage.depends_on.items() if (stage.name, name) != _OF_NO_EPOCH}
        after = {name: digests[name] for name in stage.after}
        parts[stage.name] = parts_of(depends_on, after=after)
    return parts


def epoch_chain(
    config: RunConfig,
    digests: Mapping[str, str],
    *,
    epochs: int,
    files: NamedFiles | None = None,
    amendments: Amendments = (),
) -> Chain:
    """Name and digest of each epoch's stage, which depends on the epochs before it and not on how many follow it."""
    parts = _training_parts(config, recipe_of(config), files or NamedFiles(paths_from=config.paths_from))
    stage = Stage(name="training", kind="train", after=_BEFORE_TRAINING, depends_on=parts)
    training = amended_digest(_digest(stage, digests), amendments)
    names = [epoch_stage(epoch) for epoch in range(1, epochs + 1)]
    return [
        (name, kept_digest(amendments, name) or digest_of([training, epoch]))
        for epoch, name in enumerate(names, start=1)
    ]


def _stages_of(config: RunConfig, files: NamedFiles) -> list[Stage]:
    recipe = recipe_of(config)
    preparation = _preparation_parts(config, recipe, files)
    held_out = (_HELD_OUT, _HELD_OUT_TOOLS)
    without_held_out = {name: part for name, part in preparation.items() if name not in held_out}
    stop_at = config.trainer.stop_at.model_dump(mode="json") if config.trainer.stop_at else None
    length = training_length(config) | {"stop_at": stop_at}
    training = _training_parts(config, recipe, files) | {"length": length}
    judging = _evaluation_parts(config, recipe, files)
    trained = judging | {"merge.checkpoint": config.merge.checkpoint}
    before_training = {
        "seed": config.seed,
        "model": _but(recipe["model"], *_TRAINED_PART),
        "data.shuffle": config.data.shuffle if config.cold_start else None,
        "cold_start": recipe["cold_start"],
    }
    evaluations = ("evaluate-base", "evaluate-trained")
    pushed = {"merge.push": config.merge.push}
    push = Stage(name="push", kind="push", after=("merge", "model-card"), depends_on=pushed)
    return [
        Stage(name="prepare", kind="prepare", after=(), depends_on=preparation),
        Stage(name="training-rows", kind="prepare", after=(), depends_on=without_held_out),
        Stage(name="cold-start", kind="cold-start", after=("training-rows",), depends_on=before_training),
        Stage(name="training", kind="train", after=_BEFORE_TRAINING, depends_on=training),
        Stage(name="evaluate-base", kind="evaluate", after=("prepare", "cold-start"), depends_on=judging),
        Stage(name="evaluate-trained", kind="evaluate", after=("prepare", "training"), depends_on=trained),
        Stage(name="merge", kind="merge", after=("training",), depends_on={"merge": recipe["merge"]}),
        Stage(name="model-card", kind="model-card", after=("prepare", *evaluations, "merge"), depends_on=pushed),
        *([push] if config.merge.push else []),
        Stage(
            name="report",
            kind="report",
            after=("prepare", *evaluations, "merge"),
            depends_on={"tracking.gallery_items": config.tracking.gallery_items},
        ),
    ]


def _digest(stage: Stage, digests: Mapping[str, str]) -> str:
    inputs = {name: digests[name] for name in stage.after}
    return digest_of([stage.kind, dict(stage.depends_on), inputs])


def _but(section: Tree, *names: str) -> Tree:
    return {name: value for name, value in section.items() if name not in names}


def _of(section: Tree, *names: str) -> Tree:
    return {name: value for name, value in section.items() if name in names}


def training_length(config: RunConfig) -> Tree:
    """The length of the training, of which `trainer.stop_at` may leave out the end."""
    steps, epochs = config.trainer.max_steps, config.trainer.total_epochs
    return {"epochs": epochs} if steps is None else {"steps": steps}


def _preparation_parts(config: RunConfig, recipe: Tree, files: NamedFiles) -> Tree:
    cold = config.cold_start
    own_source = cold.source if cold else None
    family = config.model.family
    data = config.data.model_dump(mode="json", exclude={**ARRANGING, "validation": True, "max_bad_share": True})
    return {
        "seed": config.seed,
        "data": data,
        "the text of data.prompt_template": files.text(config.data.prompt_template),
        "the text of data.override_chat_template": files.text(config.data.override_chat_template),
        "model": _of(recipe["model"], "source", "dtype", "family"),
        "the files of model.source.path": files.weights(config.model.source),
        "the rows of data.train": files.fingerprint("train", config.data.train),
        _HELD_OUT: files.fingerprint("validation", config.data.validation),
        "the rows of cold_start.source": files.fingerprint("cold_start", own_source) if own_source else None,
        "cold_start.target_template": cold.target_template if cold else None,
        "code": {} if family is None else {family: dict(files.code_of(family, files.fixed_file))},
        "tools": _tool_parts(config, recipe, files),
        **({_HELD_OUT_TOOLS: unequal["tools"]} if (unequal := _unequal_tools(config)) else {}),
    }


def _training_parts(config: RunConfig, recipe: Tree, files: NamedFiles) -> Tree:
    """What one epoch depends on. The length of the run is included only where the learning rate follows it, and of the
    evaluation only the keys that validations use."""
    validating = ["accuracy_key", "limit"]
    validating += ["n", "temperature", "top_p"] if config.trainer.val_mode == "sampled" else []
    custom = [section.function for _, section in config.algorithm.custom_functions()]
    return {
        "seed": config.seed,
        "model": _of(recipe["model"], *_TRAINED_PART),
        "data": config.data.model_dump(mode="json", include={*ARRANGING}),
        "reward": _reward_parts(config, recipe, files),
        "rollout": recipe["rollout"],
        "tools": _tool_parts(config, recipe, files),
        "algorithm": recipe["algorithm"],
        "code": {function: dict(files.code_of(function)) for function in custom},
        "actor": recipe["actor"],
        "critic": recipe["critic"],
        "trainer": recipe["trainer"],
        FOLLOWED_LENGTH: training_length(config) if follows_length(config) else None,
        "evaluation": _of(recipe["evaluation"], *validating) | _unequal_tools(config),
    }


def follows_length(config: RunConfig) -> bool:
    """Whether the learning rate of policy or critic depends on when the training ends."""
    return any(owner.optim.follows_length for owner in (config.actor, config.critic) if owner is not None)


def _evaluation_parts(config: RunConfig, recipe: Tree, files: NamedFiles) -> Tree:
    return {
        "seed": config.seed,
        "evaluation": _but(recipe["evaluation"], "tools") | _unequal_tools(config),
        "reward": _reward_parts(config, recipe, files),
        "rollout.max_response_length": config.rollout.max_response_length,
        "tools": _tool_parts(config, recipe, files) if config.held_out_tools else None,
    }


def _unequal_tools(config: RunConfig) -> Tree:
    """The key of the held-out rows' tools, where these are not those of the training."""
    has_equal = config.tools is None or config.evaluation.tools == "same"
    return {} if has_equal else {"tools": config.evaluation.tools}


def _tool_parts(config: RunConfig, recipe: Tree, files: NamedFiles) -> Tree | None:
    if config.tools is None:
        return None
    return recipe["tools"] | {"code": {function: dict(files.code_of(function)) for function in config.tools.user_code}}


def _reward_parts(config: RunConfig, recipe: Tree, files: NamedFiles) -> Tree:
    code = {function: dict(files.code_of(function)) for function in config.reward.user_functions}
    return {"reward": recipe["reward"], "code": code}
