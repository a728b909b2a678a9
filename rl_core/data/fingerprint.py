"""The digest of everything that prepared data depends on. Imports neither transformers nor torch, because a plan must
be quick."""

from pathlib import Path

from rl_core.config.data import ARRANGING, DataConfig
from rl_core.digests import digest_of, file_digest, file_digests
from rl_core.sources.source import DataSource

FORMAT_VERSION = 6
"""Raised by hand when equal inputs are prepared differently, as by another renderer or another file layout."""

# Files of a model folder that decide how text becomes tokens and how many tokens an image takes.
_TEXT_FILES = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template*",
    "additional_chat_templates/*",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "config.json",
    "*.py",
)
# Settings that enter the fingerprint as the content of the files that they name.
_NAMED_CONTENT = {"train": True, "validation": True, "prompt_template": True, "override_chat_template": True}


def preparation_fingerprint(data: DataConfig, *, model_folder: Path, cold_start_source: DataSource | None) -> str:
    """Digest of everything that `prepare_dataset` depends on."""
    template = data.prompt_template
    sources = {"train": data.train, "validation": data.validation, "cold_start": cold_start_source}
    return digest_of(
        {
            "format": FORMAT_VERSION,
            "settings": data.model_dump(mode="json", exclude={**ARRANGING, **_NAMED_CONTENT}),
            "template": None if template is None else file_digest(Path(template)),
            "model": _model_text_fingerprint(model_folder),
            "sources": {name: source.fingerprint() for name, source in sources.items() if source is not None},
        }
    )


def _model_text_fingerprint(model_folder: Path) -> str:
    paths = sorted({path for pattern in _TEXT_FILES for path in model_folder.glob(pattern) if path.is_file()})
    names = [path.relative_to(model_folder).as_posix() for path in paths]
    return digest_of(dict(zip(names, file_digests(paths), strict=True)))
