"""The work of the stage `prepare`: it writes the configured model, and the rows as prompts of that model."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rl_core.config.model import PretrainedModel, TinyModel
from rl_core.config.run import RunConfig
from rl_core.data.chat import replace_chat_template
from rl_core.data.manifest import DataManifest, preparation_fingerprint
from rl_core.data.preparation import prepare_dataset
from rl_core.data.prompts import corpus
from rl_core.files import committed_folder, link_or_copy, read_utf8
from rl_core.planning.model_sizes import check_architecture, check_no_adapter
from rl_core.planning.model_tokens import ModelTokens
from rl_core.planning.token_rules import problems_with_tokens
from rl_core.problem import raise_if_fatal
from rl_core.progress import Progress
from rl_core.records.metrics_log import DOUBT_EVENT, RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.templates import target_template
from rl_core.tools.conversations import Conversations, conversing
from rl_core.tools.toolbox import tool_schemas

logger = logging.getLogger(__name__)


def prepare_run(
    config: RunConfig,
    run: RunDirectory,
    *,
    progress: Progress,
    bring: Callable[[str], bool] = lambda fingerprint: False,
) -> DataManifest:
    """Write the initial model and the prepared rows of a config, with the files that it names where they lie, into a
    run's folder, each whole or not at all. `bring` brings the prepared rows with this fingerprint from elsewhere, and
    returns whether it did; they do not depend on the seed, which an initial model may. Raises ValueError where the
    model cannot be built or the data cannot be used, and OSError where the checkpoint cannot be read or downloaded."""
    source = config.model.source
    making = "build the tiny model" if isinstance(source, TinyModel) else f"get the checkpoint {source.path}"
    with progress.wait(making), committed_folder(run.initial_model) as folder:
        write_initial_model(config, folder)
    own_source = config.cold_start.source if config.cold_start else None
    folder = run.initial_model
    # A chat template that cannot carry a conversation is named before anything is trained.
    conversations = conversing(config.tools, config.data, folder)
    if isinstance(conversations, Conversations) and conversations.remark is not None:
        logger.warning("tools: %s", conversations.remark)
        RunLogs(run).log_event(DOUBT_EVENT, why=conversations.remark)
    depends_on: dict[str, Any] = {
        "model_folder": folder,
        "cold_start_source": own_source,
        "tools": tool_schemas(config.tools, config.data),
        "held_out_tools": tool_schemas(config.held_out_tools, config.data),
        "max_result_pixels": None if config.tools is None else config.tools.max_pixels,
    }
    if bring(preparation_fingerprint(config.data, **depends_on)):
        return DataManifest.read(run.data)
    return prepare_dataset(config.data, out=run.data, progress=progress, **depends_on)


_OTHER_FORMATS = ["*.bin", "*.pth", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*", "*.md"]
"""Files of a hub checkpoint that Sightline does not read."""

_TARGET_WEIGHT = 1000
"""How often the answer format is in the training text of a tiny model's tokenizer: as often as a frequent word of the
prompts, so that the format becomes few tokens."""


def write_initial_model(config: RunConfig, folder: Path) -> None:
    """Fill an empty folder with the configured model: a tiny model is built, the files of a checkpoint are linked, and
    either gets the configured chat template. Raises ValueError where the sizes of a tiny model do not fit together, the
    checkpoint is of an architecture that Sightline does not train, or an adapter, none of its tokens ends a response,
    or a text of the config holds a control token. Raises OSError where the checkpoint cannot be read or downloaded."""
    source = config.model.source
    if isinstance(source, TinyModel):
        from rl_core.models.tiny import build_tiny_model

        targets: list[str] = []
        if config.cold_start is not None:
            form = target_template(config.cold_start.target_template)
            targets = [form.render(answer="", question="")] * _TARGET_WEIGHT
        texts = corpus(config.data, targets)
        build_tiny_model(source, folder, corpus=texts, seed=config.seed, dtype=config.model.dtype)
    else:
        for path in _checkpoint_files(source):
            link_or_copy(path.resolve(), folder / path.name)
        check_architecture(folder / "config.json")  # before anything loads it
    if config.data.override_chat_template is not None:
        replace_chat_template(folder, read_utf8(Path(config.data.override_chat_template)))
    # A plan knows these problems too, but not of a checkpoint that has to be downloaded.
    raise_if_fatal(list(problems_with_tokens(config, ModelTokens.read(folder))))


def _checkpoint_files(source: PretrainedModel) -> Iterator[Path]:
    """The files of a checkpoint's folder, which is downloaded first when it is on the hub. Raises OSError when there is
    neither a folder nor a checkpoint of that name, and ValueError where it is an adapter."""
    folder = Path(source.path)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(source.path, revision=source.revision, ignore_patterns=_OTHER_FORMATS))
        except OSError as error:
            reason = str(error).strip().partition("\n")[0]
            raise OSError(
                f"model.source.path: there is no folder {source.path}, and the hub gave no checkpoint of that name "
                f"({reason}); correct the path or model.source.revision, or see that this machine reaches the hub"
            ) from error
    check_no_adapter(folder)
    yield from (path for path in sorted(folder.iterdir()) if path.is_file())
