"""What `auto` became on the machine that a run is on, as an event of the run. On another machine a run goes on with the
choices for that machine, since it may not fit otherwise, and its numbers differ from there on by rounding."""

import logging
from collections.abc import Mapping
from typing import Any

from rl_core.config.run import RunConfig
from rl_core.planning.gpu import find_gpu
from rl_core.planning.model_sizes import read_sizes
from rl_core.planning.settings import resolve_auto
from rl_core.records.metrics_log import SETTINGS_EVENT, RunLogs, read
from rl_core.run_directory import RunDirectory

logger = logging.getLogger(__name__)


def resolve_for_this_machine(config: RunConfig, run: RunDirectory) -> RunConfig:
    """The config with a value in place of every `auto`. Records the choices if they are not those that the run recorded
    last, and warns if there were others. The run must have its initial model."""
    gpu = find_gpu(config.cluster.device)
    sizes = None if gpu is None else read_sizes(run.initial_model / "config.json")
    resolved = resolve_auto(config, sizes, gpu)
    before = last_choices(run)
    if resolved.values and before != resolved.values:
        changed = {key: before[key] for key, value in resolved.values.items() if before.get(key, value) != value}
        machine = {"on_gpu": gpu is not None, "gpu_gib": None if gpu is None else gpu.memory_gib}
        RunLogs(run).log_event(SETTINGS_EVENT, chosen=resolved.values, why=resolved.why, changed=changed, **machine)
        for key, value in changed.items():
            logger.warning(
                "%s was chosen as %s before and is %s now (%s): from here on the numbers of the run may differ by "
                "rounding from those of a machine like the one before; set the key to keep its value",
                key,
                value,
                resolved.values[key],
                resolved.why,
            )
    return resolved.config


def last_choices(run: RunDirectory) -> Mapping[str, Any]:
    """[key] -> what the run chose last; empty for a run that has recorded nothing yet."""
    recorded = [event for event in read(run.events) if event["kind"] == SETTINGS_EVENT]
    return dict(recorded[-1]["chosen"]) if recorded else {}
