"""What a run tries before it starts: its reward, its losses and filters, the first rows, and if need be all of them.
Imports no Prefect, and torch only to try the data."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rl_core.algorithms.estimators import CustomAdvantage
from rl_core.algorithms.filters import CustomFilter
from rl_core.algorithms.group_filter import GroupFilterSection, group_scores
from rl_core.algorithms.losses import CustomLoss
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.data import DataConfig
from rl_core.config.model import TinyModel
from rl_core.config.run import RunConfig
from rl_core.data.answer_guesses import guess_options
from rl_core.data.images import ImageStoreWriter
from rl_core.data.pixels import prepare_image
from rl_core.data.prepared import IMAGES_FILE
from rl_core.data.prompts import PromptTemplate
from rl_core.image_sizes import ImageSizes
from rl_core.planning.gpu import find_gpu
from rl_core.planning.hub import SECONDS_OF_RUN, ask_hub
from rl_core.problem import Problem
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.section import problems_in
from rl_core.sources.local import LocalSource
from rl_core.sources.options import read_options
from rl_core.sources.rows import Row
from rl_core.sources.source import DataSource
from rl_core.types import Prompt, Score
from rl_core.wording import shortened
from tasks.planning.problems import glance_at, has_fatal, planned_problems, text_problems

if TYPE_CHECKING:
    from rl_core.rewards.trial import GroundTruthTrial

_ROWS_TRIED = 8
"""Number of rows of each source on whose true answers the reward is tried."""

_ROWS_LOOKED_AT = 256
"""Number of rows of each source that are read in search of a second answer."""

_NO_LIMIT = 1 << 20

_OF_ANSWERS = "correct the reward or the answers' column"

_FIX = "correct the function, or its arguments in kwargs"
_FIX_UNLESS_MEANT = "nothing, if it is meant so; else correct the function"

_OF_THE_REWARD = (
    "reward",
    "cold_start.target_template",
    "evaluation.accuracy_key",
    "algorithm.online_filtering.filter_key",
)
"""Keys whose problems make it impossible to try the reward."""

_OF_EVALUATION = ("data.validation", "data.prompt_template", "data.override_chat", "reward", "evaluation", "tools")
"""Keys that an evaluation of the held-out rows depends on."""

_OF_THE_ROWS = (
    "data.train",
    "data.validation",
    "cold_start.",
    "data.system_prompt",
    "data.prompt_template",
    "data.override_chat",
    "model.source",
)
"""Keys whose problems make it impossible to prepare rows."""


def find_problems(config: RunConfig, run: RunDirectory, *, is_prepared: bool = False) -> list[Problem]:
    """Find every problem of the config (with paths that can be read from here), the machine, the sources, the hub and
    the reward. If the rows are prepared, their sources may be gone. The rows are checked too if one of these problems
    stops the run anyway; otherwise the preparation comes next and reports the problems of the rows."""
    gpu = find_gpu(config.cluster.device)
    if is_prepared:
        problems = planned_problems(config, run, {}, [], gpu=gpu)
    else:
        answers = ask_hub(config, seconds=SECONDS_OF_RUN)
        problems = planned_problems(config, run, glance_at(config), answers, gpu=gpu)
        # Problems that the first rows of the data sources show.
        problems += [problem.below(key) for key, source in config.sources() for problem in source.trial_problems()]
    if may_try_reward(config, problems):
        problems += reward_problems(config)
    problems += _algorithm_problems(config.algorithm)
    if not is_prepared and not has_fatal(problems, _OF_THE_ROWS):
        problems += hidden_options(config)
    if not is_prepared and has_fatal(problems) and not has_fatal(problems, _OF_THE_ROWS):
        problems += data_problems(config)
    return problems


def may_try_reward(config: RunConfig, problems: Sequence[Problem]) -> bool:
    """Whether none of these problems makes it impossible, and a reward may judge a true answer without the numbers of
    an environment."""
    has_environment = config.tools is not None and config.tools.environment is not None
    return not has_environment and not has_fatal(problems, _OF_THE_REWARD)


def evaluation_problems(config: RunConfig) -> list[Problem]:
    """Problems of what asks and grades the held-out rows. The reward is tried if nothing else is wrong."""
    found = [*problems_in(config), *text_problems(config)]
    problems = [problem for problem in found if problem.where.startswith(_OF_EVALUATION)]
    if has_fatal(problems) or not may_try_reward(config, problems):
        return problems
    return [*problems, *reward_problems(config)]


def reward_problems(config: RunConfig) -> list[Problem]:
    """Problems that show when the reward is tried on the true answers of the first rows of each source."""
    return trial_problems(config, try_reward(config))


def trial_problems(config: RunConfig, trial: "GroundTruthTrial") -> list[Problem]:
    """Problems that a trial of the reward has shown."""
    filtering = config.algorithm.online_filtering
    return [
        *_filter_problems(filtering, trial.scores),
        *(Problem(where="reward", what=what, fix=_OF_ANSWERS) for what in trial.problems),
        *(Problem(where="reward", what=what, fix=_OF_ANSWERS, fatal=False) for what in trial.warnings),
    ]


def answer_problems(config: RunConfig) -> list[Problem]:
    """Warnings about answers in local files that no response could give; no code of the user is run."""
    # Imported here, as above.
    from rl_core.rewards.trial_findings import doubtful_answers

    sources = [source for source in (config.data.train, config.data.validation) if isinstance(source, LocalSource)]
    try:
        doubts = doubtful_answers(config.reward, [_prompt(row) for source in sources for row in _asked(source)])
    except ValueError:  # of a reward, which text_problems reports
        return []
    return [Problem(where="reward", what=what, fix=_OF_ANSWERS, fatal=False) for what in doubts]


def hidden_options(config: RunConfig, *, local_only: bool = False) -> list[Problem]:
    """A warning where the answers of the first rows choose among options that no prompt shows. With `local_only` other
    sources, which run code of the user or fetch something, are not opened."""
    sources = {"data.train": config.data.train, "data.validation": config.data.validation}
    for key, source in sources.items():
        rows = _asked(source) if not local_only or isinstance(source, LocalSource) else []
        options = _options(rows)
        try:
            hidden = [row for row, texts in zip(rows, options, strict=True) if not _are_shown(row, texts, config.data)]
        except ValueError:  # of the template, which text_problems reports
            return []
        if 2 * len(hidden) > len(rows):
            named = ", ".join(map(repr, options[rows.index(hidden[0])]))
            return [
                Problem(
                    where="data.prompt_template",
                    what=f"the answers of {key} choose among options, and the prompts of {len(hidden)} of the first "
                    f"{len(rows)} rows do not show these ({shortened(named)})",
                    fix=f"name their column with {key}.columns.options_key, and show `options` in the template; "
                    "nothing, if the images show them",
                    fatal=False,
                    on_pages=True,
                )
            ]
    return []


def _options(rows: Sequence[Row]) -> list[list[str]]:
    """[row] -> the texts of its options: those that are named, or else those that its further columns seem to have."""
    names = dict.fromkeys(name for row in rows for name in row.extra)
    found, _ = guess_options([*names], [row.extra for row in rows], [row.answer for row in rows], None)

    def guessed(row: Row) -> list[str]:
        try:
            return [] if found is None else [*read_options(row.extra, found.key).values()]
        except ValueError:
            return []

    return [[*row.options.values()] or guessed(row) for row in rows]


def _are_shown(row: Row, texts: Sequence[str], data: DataConfig) -> bool:
    shown = PromptTemplate.load(data.prompt_template).render(row.question, row.template_values)
    prompt = " ".join([data.system_prompt or "", *(turn.content for turn in row.history), shown])
    return all(text in prompt for text in texts)


def try_reward(config: RunConfig) -> "GroundTruthTrial":
    """Try the reward on true and wrong answers of some rows of each source."""
    # Imported here: plans do not call the reward.
    from rl_core.rewards.trial import try_on_ground_truth

    filtering = config.algorithm.online_filtering
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / IMAGES_FILE
        with ImageStoreWriter(store) as images:
            rows = [*_asked(config.data.train), *_asked(config.data.validation)]
            may_look = bool(config.reward.user_functions)
            tried = [_with_images(row, config.data, images) if may_look else _prompt(row) for row in rows]
        return try_on_ground_truth(
            config.reward,
            [prompt for prompt in tried if prompt is not None],
            target_template=config.cold_start.form_of_answers if config.cold_start else None,
            accuracy_key=config.evaluation.accuracy_key,
            filter_key=filtering.component if filtering else None,
            image_store=store,
            answer_names=config.answer_names,
        )


def _filter_problems(filtering: GroupFilterSection | None, scores: Sequence[Score]) -> Iterator[Problem]:
    """Problems of a user filter, which is tried on one group of the given scores with equal components."""
    components = [score.components for score in scores if score.error is None]
    if not (isinstance(filtering, CustomFilter) and filtering.is_well_written and components):
        return
    from rl_core.algorithms.trial import filter_problem

    group = group_scores([found for found in components if found.keys() == components[0].keys()])
    what = filter_problem(filtering, group)
    if what is not None:
        yield Problem(where="algorithm.online_filtering", what=what, fix=_FIX)


def _algorithm_problems(algorithm: AlgorithmConfig) -> Iterator[Problem]:
    """Problems of user losses and estimators, which are imported and tried on made-up inputs."""
    tried = {key: custom for key, custom in algorithm.custom_functions() if custom.is_well_written}
    if not tried:
        return
    # Imported here: it loads torch, which before the training only functions of the user need.
    from rl_core.algorithms.trial import advantage_doubts, advantage_problem, loss_doubts, loss_problem

    for key, custom in tried.items():
        what, doubts = None, list[str]()
        if isinstance(custom, CustomLoss):
            what = loss_problem(custom)
            doubts = loss_doubts(custom) if what is None else []
        elif isinstance(custom, CustomAdvantage):
            what = advantage_problem(custom)
            doubts = advantage_doubts(custom) if what is None else []
        if what is not None:
            yield Problem(where=key, what=what, fix=_FIX)
        for doubt in doubts:
            yield Problem(where=key, what=doubt, fix=_FIX_UNLESS_MEANT, fatal=False)


def _asked(source: DataSource) -> list[Row]:
    """The first readable rows; none of a source that cannot be opened. Where all of a data source have the same answer,
    as in a folder of classes, a later row with another one is added."""
    try:
        rows = [row for row in source.first_rows(_ROWS_TRIED).open() if isinstance(row, Row)]
        rows += _other_answers(source, rows)
    except ValueError:
        return []
    return rows


def _prompt(row: Row) -> Prompt:
    """Without tokens and images."""
    nothing = np.zeros(0, dtype=np.int32)
    return Prompt(
        uid=f"{row.index}",
        data_source=row.data_source,
        question=row.question,
        text=row.question,
        answer=row.answer,
        token_ids=nothing,
        engine_token_ids=nothing,
        extra=row.extra,
    )


def _with_images(row: Row, data: DataConfig, images: ImageStoreWriter) -> Prompt | None:
    """None for a row with an image that cannot be read, which the preparation reports. The sizes are not in whole
    patches, since there may be no model yet."""
    try:
        stored = [prepare_image(one, min_pixels=data.min_pixels, max_pixels=data.max_pixels) for one in row.images]
    except ValueError:
        return None
    return replace(
        _prompt(row),
        image_uids=tuple(images.add(image.encoded) for image in stored),
        image_sizes=tuple(ImageSizes(image.original, (image.width, image.height)) for image in stored),
    )


def _other_answers(source: DataSource, rows: Sequence[Row]) -> Iterator[Row]:
    answers: dict[str, set[str]] = {}
    for row in rows:
        answers.setdefault(row.data_source, set()).add(row.answer_text)
    alike = {name: one for name, (one, *others) in answers.items() if not others}
    for later in source.first_rows(_ROWS_LOOKED_AT).open() if alike else ():
        if isinstance(later, Row) and alike.get(later.data_source, later.answer_text) != later.answer_text:
            del alike[later.data_source]
            yield later
        if not alike:
            return


def data_problems(config: RunConfig) -> list[Problem]:
    """Problems that a preparation in a temporary folder shows."""
    # Imported here: it loads transformers.
    from tasks.preparation import prepare_run

    if isinstance(config.model.source, TinyModel):
        # The tokenizer is trained on the rows, so unusable rows change it, and prompt lengths would mean nothing.
        data = config.data.model_copy(update={"max_prompt_length": _NO_LIMIT})
        config = config.model_copy(update={"data": data})
    try:
        with tempfile.TemporaryDirectory() as scratch:
            prepare_run(config, RunDirectory(Path(scratch)), progress=SilentProgress())
    except (ValueError, OSError) as error:
        what = str(error).replace("\n", "\n    ")
        return [Problem(where="data", what=what, fix="correct the rows, or the columns and limits in `data`")]
    return []
