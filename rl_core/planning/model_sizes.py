"""How large a model is, from its config.json alone. transformers builds it without weights (meta_model.py): in this
process where torch is loaded already, and otherwise in another one, which takes some seconds. The result is kept in
`$XDG_CACHE_HOME/sightline/models` (`~/.cache/sightline/models`), whose files may be deleted at any time."""

import hashlib
import importlib
import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from huggingface_hub import try_to_load_from_cache

from rl_core.config.model import ModelSource, PretrainedModel, TinyModel
from rl_core.families.registry import FAMILIES, PUBLISHED, family_of
from rl_core.files import atomic_write_bytes, cache_folder, read_json
from rl_core.planning.hub import is_folder, is_hub_path
from rl_core.wording import exit_words, shortened

Fields = Mapping[str, Any]

SECONDS: Final = 120.0
"""How long the other process may take; most of it is the import of torch and transformers."""

_BUILDER: Final = "rl_core.planning.meta_model"
_BUILDER_FILE: Final = Path(__file__).with_name("meta_model.py")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """The sizes that memory and disk depend on, and the names that LoRA chooses from. What is of a vision tower is 0
    for a text model.

    Attributes:
        family: The `model_type`.
        parameters: A tied output head counts once.
        vision_parameters: The layers that join the tower to the text are included.
        layer_parameters: Of the largest layer of the language model, with all of its experts.
        patch_size: Side of a patch in pixels.
        patch_numbers: Numbers of a patch, of all its channels and of all frames that it shows.
        gated_vision: Whether the feed-forward of a vision block is gated.
        kinds_of_heads: Of each kind of layers, the size of a head and how many have keys and values.
        query_size, key_value_size: Heads x head size, of the kind where it is largest.
        experts_per_token: How many experts of a layer a token goes through; 0 for a model without experts.
        norms_queries: Whether the queries and keys of each head are normalised.
        tied_head: Whether the output head is the embedding.
        linear_layers: Inputs plus outputs of each linear layer that can be adapted, by its full name in transformers.
        other_modules: The full names of everything else: embeddings, the output head, norms, what holds others, and the
            weights of all experts in one.
    """

    family: str
    parameters: int
    vision_parameters: int = 0
    vision_blocks: int = 0
    vision_heads: int = 0
    patch_size: int = 0
    patch_numbers: int = 0
    vision_width: int = 0
    vision_intermediate_size: int = 0
    gated_vision: bool = False
    num_layers: int
    layer_parameters: int
    hidden_size: int
    intermediate_size: int
    kinds_of_heads: Sequence[tuple[int, int]]
    query_size: int
    key_value_size: int
    experts_per_token: int = 0
    norms_queries: bool = False
    vocab_size: int
    tied_head: bool = False
    max_positions: int
    linear_layers: Mapping[str, int] = field(default_factory=dict)
    other_modules: frozenset[str] = frozenset()

    @property
    def head_size(self) -> int:
        """Size of the largest attention heads of the language model."""
        return max(size for size, _ in self.kinds_of_heads)

    @property
    def heads(self) -> int:
        """Attention heads of a layer of the language model."""
        return self.query_size // self.head_size

    def why_heads_not_shared(self, ranks: int) -> str | None:
        """Why the attention heads cannot be shared by this many ranks, in words; None if they can."""
        reasons = (why_not_shared(self.heads, key_values, ranks) for _, key_values in self.kinds_of_heads)
        return next((reason for reason in reasons if reason is not None), None)

    def why_layers_not_shared(self, ranks: int) -> str | None:
        """Why vLLM cannot divide the layers among this many ranks; None if it can."""
        if self.vision_heads % ranks:
            return f"{self.vision_heads} attention heads of the vision tower cannot be shared equally by {ranks} ranks"
        if self.intermediate_size % ranks:
            return f"feed-forward layers of width {self.intermediate_size} cannot be shared equally by {ranks} ranks"
        return self.why_heads_not_shared(ranks)


NO_SHARED_STATE: Final = (
    "layers of the model carry a state from token to token, which ranks with a slice of the tokens each do not have"
)


def why_not_shared(heads: int, key_value_heads: int, ranks: int) -> str | None:
    """Why the attention heads of a model cannot be shared by this many ranks, in words; None if they can."""
    if heads % ranks:
        return f"{heads} attention heads cannot be shared equally by {ranks} ranks"
    if key_value_heads % ranks and ranks % key_value_heads:
        return f"neither of {key_value_heads} key/value heads and {ranks} ranks is a multiple of the other"
    return None


def model_sizes(source: ModelSource) -> ModelSizes | None:
    """Sizes of a configured model; None where `config_fields` or `sizes_of_config` have nothing. Raises as they do."""
    fields = config_fields(source)
    return None if fields is None else sizes_of_config(fields)


def check_source(source: ModelSource) -> None:
    """Raises ValueError where a configured model is no checkpoint, or has an architecture that Sightline does not
    train, without building it."""
    fields = config_fields(source)
    if fields is not None:
        family_of(fields)


def config_fields(source: ModelSource) -> Fields | None:
    """What the config.json of a configured model says about its layers; None for one of the hub that was never
    downloaded and is not known beforehand. Raises ValueError where there is none."""
    if isinstance(source, TinyModel):
        return FAMILIES[source.family].tiny_fields(source, vocab_size=source.max_vocab_size)
    folder = checkpoint_folder(source)
    return PUBLISHED.get(source.path) if folder is None else _read_fields(folder / "config.json")


def checkpoint_folder(source: PretrainedModel) -> Path | None:
    """The folder of a checkpoint on this machine; None for one of the hub that was never downloaded. Raises ValueError
    where its path can be neither."""
    if is_folder(source.path):
        return Path(source.path)
    if not is_hub_path(source.path):
        raise ValueError(f"there is no folder {shortened(source.path)}")
    cached = try_to_load_from_cache(source.path, "config.json", revision=source.revision)
    return Path(cached).parent if isinstance(cached, str) else None


def read_sizes(config_json: Path) -> ModelSizes | None:
    """Sizes of a checkpoint, by its config.json. Raises as `sizes_of_config`, and where there is no such file."""
    return sizes_of_config(_read_fields(config_json))


def check_architecture(config_json: Path) -> None:
    """Raises ValueError where there is no such file, or it names an architecture that Sightline does not train."""
    family_of(_read_fields(config_json))


def sizes_of_config(fields: Fields) -> ModelSizes | None:
    """Sizes from the fields of a config.json; None where the model cannot be built in time. Raises ValueError where
    Sightline does not train it, or transformers cannot build it."""
    family = family_of(fields)
    described = describe_model(fields, places=() if family.vision is None else family.vision.places)
    if described is None:
        return None
    return ModelSizes(**{**described, "other_modules": frozenset(described["other_modules"])})


def check_no_adapter(folder: Path) -> None:
    """Raises ValueError where a folder holds a LoRA adapter: transformers would add it to the weights beside it, and
    vLLM would not load either."""
    adapter = folder / "adapter_config.json"
    if not adapter.is_file():
        return
    base = read_json(adapter).get("base_model_name_or_path") or "a model that it does not name"
    held = f"{folder} holds a LoRA adapter ({adapter.name}) of {shortened(base)}"
    whole = {*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")} - {*folder.glob("adapter_*")}
    if whole:
        raise ValueError(
            f"{held} beside whole weights, and only one of the two can be meant: remove its adapter_* files to take "
            "the weights, or merge the adapter into its base"
        )
    raise ValueError(f"{held} and no whole weights: merge it first")


def _read_fields(config_json: Path) -> Fields:
    check_no_adapter(config_json.parent)
    if not config_json.is_file():
        raise ValueError(f"{config_json.parent} has no config.json, so it is no checkpoint")
    fields: Fields = json.loads(config_json.read_text())
    return fields


def describe_model(fields: Fields, *, places: Sequence[str]) -> Mapping[str, Any] | None:
    """The result of `meta_model.describe`; None, with a warning, where the other process died or took more than
    `SECONDS`.

    Raises:
        ValueError: no model can be built of these fields; the message says why.
    """
    described = _described(json.dumps({"fields": fields, "places": places}, sort_keys=True))
    if described is not None and "error" in described:
        raise ValueError(described["error"])
    return described


@lru_cache(maxsize=16)
def _described(asked: str) -> Mapping[str, Any] | None:
    file = cache_folder("models") / f"{_digest(asked)}.json"
    if (remembered := _read(file)) is not None:
        return remembered
    described = _built_here(asked) if "torch" in sys.modules else _built_elsewhere(asked)
    if described is not None and "error" not in described:
        _write(file, described)
    return described


def _built_here(asked: str) -> Mapping[str, Any]:
    builder = importlib.import_module(_BUILDER)  # by name: a plan must not load torch
    try:
        described: Mapping[str, Any] = builder.describe(**json.loads(asked))
    except ValueError as error:
        return {"error": str(error)}
    return described


def _built_elsewhere(asked: str) -> Mapping[str, Any] | None:
    command = [sys.executable, "-P", str(_BUILDER_FILE)]
    try:
        done = subprocess.run(command, input=asked, text=True, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        logger.warning("the model's parameters are not known: counting them took more than %g seconds", SECONDS)
        return None
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        logger.warning(
            "the model's parameters are not known: the process that counts them ended with %s: %s",
            exit_words(done.returncode),
            last,
        )
        return None
    described: Mapping[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return described


def _digest(asked: str) -> str:
    """Digest of all that the result depends on: what is asked, the packages, and the code that describes the
    model."""
    packages = f"torch {version('torch')}, transformers {version('transformers')}"
    code = _BUILDER_FILE.read_text()
    return hashlib.sha256("\n".join((asked, packages, code)).encode()).hexdigest()[:16]


def _read(file: Path) -> Mapping[str, Any] | None:
    try:
        value = read_json(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and "parameters" in value else None


def _write(file: Path, described: Mapping[str, Any]) -> None:
    try:
        atomic_write_bytes(file, json.dumps(described).encode())
    except OSError:
        logger.debug("the parameters of the model are counted again next time: %s cannot be written", file)
