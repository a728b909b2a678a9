"""Every check of a given model, in the order of the table. Loads no torch."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rl_core.config.model import PretrainedModel
from rl_core.environment import usable_memory
from rl_core.planning.model_sizes import check_no_adapter, checkpoint_folder
from tasks.device_check.check import Check, Finding, not_checked
from tasks.device_check.checks import LORA_MERGED, LORA_SEPARATE, SHARDING, TRAINING, device_findings

OPENS: Final = "transformers makes the model without code of the checkpoint"
ROWS: Final = "the processor takes images of many sizes"
TREES: Final = "trainer: packed trees have the log-probs of single sequences in transformers"
GRADIENTS: Final = "trainer: and their gradients, with activations computed again"
REPEATS: Final = "trainer: two passes are equal to the bit"
ARRIVES: Final = "generator: every number of every weight arrives"
EPSILONS: Final = "generator: every norm has the trainer's epsilon"
UNCHANGED: Final = "trainer: nothing changes when the generator starts"
AGREES: Final = "generator: log-probs are the trainer's, with three sets of weights"
CACHED: Final = "generator: a prompt in its cache gives the same responses"
BANNED: Final = "generator: no token that stands for an image is sampled"
CHOOSES: Final = "generator: it chooses experts as the trainer does"
MERGED: Final = "the merged model has the trainer's log-probs in transformers and vLLM"

BYTES_OF_CHECKS: Final = 24
"""Bytes a parameter of the largest check: float32 weights of two models, of which one learns."""

_BASICS: Final = "the model cannot be trained; the log of the check (--output FILE) has the whole error"


def essential_checks(folder: str) -> tuple[Check, ...]:
    """Those of a model's folder without which nothing is trained; the others are of single features."""
    return (
        Check(
            holds=(OPENS,),
            function=f"tasks.model_check.shrunk:opening_findings:{folder}",
            advice="transformers cannot make the model: see whether the checkpoint has a newer layout",
        ),
        Check(
            holds=(ROWS, TREES, GRADIENTS, REPEATS),
            function="tasks.model_check.trainer:trainer_findings",
            advice=_BASICS,
        ),
        Check(
            holds=(ARRIVES, EPSILONS, UNCHANGED, AGREES, CACHED, BANNED, CHOOSES),
            function="tasks.model_check.generator:generator_findings",
            advice=_BASICS,
        ),
    )


FEATURES: Final = (
    TRAINING,
    Check(
        holds=(MERGED,),
        function="tasks.model_check.merged:merge_findings",
        advice="the merged model cannot be served: do without the stage merge, and send the output",
    ),
    LORA_MERGED,
    LORA_SEPARATE,
    SHARDING,
)
"""The checks of single features."""

_DESCRIPTION: Final = ["*.json", "*.jinja", "*.txt", "*.model"]
"""Files of a hub checkpoint that say everything of it but its weights."""


def described_folder(path: str) -> Path:
    """The folder of a model, or what the hub has of it without the weights. Raises ValueError where there is none."""
    folder = checkpoint_folder(PretrainedModel(type="pretrained", path=path))
    if folder is None or not any(folder.glob("tokenizer*")):
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(path, allow_patterns=_DESCRIPTION))
        except OSError as error:
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(f"there is no folder {path}, and the hub gave no model of that name ({reason})") from error
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} has no config.json, so it is no model")
    check_no_adapter(folder)
    return folder


def model_findings(
    folder: Path, model: Path, *, family: str | None, devices: int | None, show: Callable[[str], None]
) -> Iterator[tuple[Check, Finding]]:
    """Make the checks of the model of a folder, which is written with few layers to `model`; `family` names its own, if
    that is none of Sightline. If an essential one
    fails, it is the last. The others need memory in which an optimizer has its place."""
    parameters = 0.0
    essential = essential_checks(str(folder.absolute()))
    for check, finding in device_findings(essential, devices=1, model=model, family=family, show=show):
        yield check, finding
        if finding.verdict == "fails":
            return
        parameters = max(parameters, float(finding.figures.get("parameters", 0.0)))
    if parameters * BYTES_OF_CHECKS > usable_memory():
        why = f"it needs about {parameters * BYTES_OF_CHECKS / 2**30:.0f} GiB of memory"
        yield from ((check, not_checked(holds, why)) for check in FEATURES for holds in check.holds)
        return
    made = device_findings(FEATURES, devices=devices, model=model, family=family, show=show)
    next(made)  # the device, again
    yield from made


def dtype_of(findings: Sequence[Finding]) -> str:
    """The number format in which a model was checked."""
    return next((str(finding.figures["dtype"]) for finding in findings if "dtype" in finding.figures), "none")
