"""Every check of the device, in the order of the table. Loads no torch, so that a broken one is a row of the table."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rl_core.config.run import RunConfig
from tasks.device_check.check import Check, Figures, Finding, Setting, not_checked
from tasks.device_check.running import findings_of

START: Final = "configured model: the generator starts"
CACHE: Final = "configured model: KV cache as planned"
ROUNDS: Final = "configured model: small batches after each of 3 rounds of sleep agree"
BANNED: Final = "configured model: banned tokens are never sampled"
AGREES: Final = "configured model: generator and trainer agree"
SPEED: Final = "configured model: speed of generation"
PEAK: Final = "configured model: memory of generation as planned"

GENERATOR: Final = (START, CACHE, ROUNDS, BANNED, AGREES, SPEED, PEAK)


def of_update(kind: str) -> tuple[str, str, str]:
    """What must hold of an update with "short" or "long" responses: of its memory, its pinned memory and its speed."""
    begin = f"configured model, {kind} responses:"
    return f"{begin} memory of the update as planned", f"{begin} pinned memory as planned", f"{begin} speed"


SOFTWARE: Final = Check(
    holds=("driver, CUDA and torch agree on the device",),
    function="tasks.device_check.software:software_findings",
    advice="torch does not start: install the extra gpu again (make install ACCELERATOR=gpu)",
)
"""The first check, whose figures say what the device is."""

_GENERATOR: Final = "vLLM does not work here: set rollout.enforce_eager: true, and send device.json"

TRAINING: Final = Check(
    holds=("3 steps with validation and checkpoints", "a step is repeated from its checkpoint"),
    function="tasks.device_check.variants:training_findings",
    advice="set trainer.async_save: false, and send device.json",
)
LORA_MERGED: Final = Check(
    holds=("LoRA, merged in the generator: 2 steps train and agree",),
    function="tasks.device_check.variants:lora_findings:merged",
    advice="set model.lora.generator_weights: separate, or model.lora: null",
)
LORA_SEPARATE: Final = Check(
    holds=("LoRA, separate in the generator: 2 steps train and agree",),
    function="tasks.device_check.variants:lora_findings:separate",
    advice="set model.lora.generator_weights: merged",
)
SHARDING: Final = Check(
    holds=("FSDP2 over all devices has the gradient norm of 1",),
    function="tasks.device_check.variants:sharding_findings",
    advice="look at NCCL_DEBUG=INFO; set cluster.devices: 1, or cluster.sharding: none",
    devices=2,
)

TINY_CHECKS: Final = (
    Check(
        holds=("attention over trees",),
        function="tasks.device_check.attention:attention_findings",
        advice="set model.attention: sdpa",
    ),
    Check(
        holds=("generator and trainer agree in float32",),
        function="tasks.device_check.generation:agreement_findings:float32",
        advice=_GENERATOR,
    ),
    Check(
        holds=("generator and trainer agree in bfloat16",),
        function="tasks.device_check.generation:agreement_findings:bfloat16",
        advice=_GENERATOR,
    ),
    Check(
        holds=(
            "a sleeping generator gives its memory back",
            "the generator sleeps and wakes: the same responses again",
        ),
        function="tasks.device_check.generation:sleep_findings",
        advice="vLLM's sleep mode does not work here: send device.json",
    ),
    Check(
        holds=("a generation is aborted: the same responses again",),
        function="tasks.device_check.generation:abort_findings",
        advice="do without algorithm.online_filtering, and send device.json",
    ),
    Check(
        holds=("the generator ends and starts again: the same responses again",),
        function="tasks.device_check.generation:restart_findings",
        advice="start the command again for each stage, and send device.json",
    ),
    TRAINING,
    LORA_MERGED,
    LORA_SEPARATE,
    Check(
        holds=(
            "trainer.offload: optimizer gives the numbers of none",
            "trainer.offload: all gives the numbers of none",
        ),
        function="tasks.device_check.variants:offload_findings",
        advice="set trainer.offload: none",
    ),
    Check(
        holds=("a generator of two devices agrees",),
        function="tasks.device_check.variants:tensor_parallel_findings",
        advice="set cluster.tensor_parallel_size: 1",
        devices=2,
    ),
    SHARDING,
    Check(
        holds=("the devices add up a tensor",),
        function="tasks.device_check.speed:bandwidth_findings",
        advice="look at NCCL_DEBUG=INFO, and try NCCL_P2P_DISABLE=1",
        devices=2,
        seconds=180.0,
    ),
    Check(
        holds=("speed of matrix products and copies",),
        function="tasks.device_check.speed:speed_findings",
        advice="the driver may be at fault: look at dmesg for Xid errors",
        seconds=180.0,
    ),
)
"""The checks of the tiny model, after `SOFTWARE`."""


_CONFIGURED_SECONDS: Final = 1800.0
"""A model of 7 billion weights is written, read twice and compiled in some minutes."""


def _configured(function: str, holds: tuple[str, ...], config: RunConfig) -> Check:
    return Check(
        holds=holds,
        function=f"tasks.device_check.{function}",
        advice="the configured model does not fit or does not start: take the keys that sightline plan names, and send "
        "device.json",
        devices=config.cluster.ranks,
        seconds=_CONFIGURED_SECONDS,
    )


def device_checks(config: RunConfig | None) -> tuple[Check, ...]:
    """The checks of the tiny model, and those of a config's model."""
    if config is None:
        return TINY_CHECKS
    return (
        *TINY_CHECKS,
        _configured("configured_generator:generator_findings", GENERATOR, config),
        _configured("configured_update:update_findings:long", of_update("long"), config),
        _configured("configured_update:update_findings:short", of_update("short"), config),
    )


def device_findings(
    checks: tuple[Check, ...],
    *,
    devices: int | None,
    config: Path | None = None,
    model: Path | None = None,
    family: str | None = None,
    show: Callable[[str], None],
) -> Iterator[tuple[Check, Finding]]:
    """Make `SOFTWARE` and the checks on the device on which a training would run here, on so many devices (None: all
    GPUs, or one process on a CPU), with this config, or this model and its own family, in their settings. `show` is
    called with the name of each check before it is made."""
    show(SOFTWARE.name)
    first = _made(SOFTWARE, config=config)
    yield from ((SOFTWARE, finding) for finding in first)
    asked, there = _devices(devices, first[0].figures)
    for check in checks:
        if min(asked, there) < check.devices:
            yield from ((check, not_checked(holds, _lacking(check, there))) for holds in check.holds)
            continue
        show(check.name)
        setting = {"devices": min(asked, there), "config": config, "model": model, "family": family}
        yield from ((check, finding) for finding in _made(check, **setting))


def _made(check: Check, **setting: Any) -> list[Finding]:
    """What a check finds, in a folder that is removed after it: a model of some gigabytes may lie there."""
    with tempfile.TemporaryDirectory(prefix="sightline-device-check-", ignore_cleanup_errors=True) as folder:
        return [*findings_of(check, Setting(folder=Path(folder), **setting))]


def _devices(asked: int | None, facts: Figures) -> tuple[int, int]:
    """How many devices are asked for, and are there: a CPU has as many as asked for; one where nothing is known."""
    if "gpus" not in facts:
        return asked or 1, 1
    gpus = int(facts["gpus"])
    return (asked or gpus, gpus) if gpus else (asked or 1, asked or 1)


def _lacking(check: Check, there: int) -> str:
    """Why there are too few devices for a check."""
    needed = f"it needs {check.devices} devices"
    if there < check.devices:
        return f"{needed}, and there {'is' if there == 1 else 'are'} {there}"
    return f"{needed}: ask for them with --devices {check.devices}"
