"""`sightline plan`: what would run, in under two seconds once the model's size is known. Imports neither Prefect nor
torch."""

from collections.abc import Mapping, Sequence
from typing import Final, get_args

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from flows.printing import print_line, print_trial_table, table_of
from flows.request import ResolvedRun
from rl_core.config.cluster import ClusterConfig, WorkerDevice
from rl_core.config.loading import ConfigError, dump_config
from rl_core.config.model import ModelConfig
from rl_core.config.run import RunConfig
from rl_core.config.tools import ToolsConfig
from rl_core.config.training import OptimConfig, RolloutConfig
from rl_core.environment import asked_threads, threads_of_a_worker
from rl_core.families.own import own_family
from rl_core.planning.batches import BatchPlan, longest_sequence
from rl_core.planning.gpu import CARDS, Gpu, attention_choice, find_gpu
from rl_core.planning.hub import SECONDS_OF_PLAN, ask_hub, no_waiting
from rl_core.planning.memory import memory_forecast
from rl_core.planning.memory_rows import GIB, MemoryForecast, MemoryRow, Phase
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.settings import ResolvedSettings, as_yaml, resolve_auto
from rl_core.planning.training_state import disk_bytes
from rl_core.problem import Problem
from rl_core.run_directory import RunDirectory
from rl_core.sources.source import Glance
from rl_core.wording import shortened
from tasks.cache.named_files import NamedFiles, located_config
from tasks.pages.plan_facts import plan_facts, work_rows, workers_title
from tasks.planning.problems import glance_at, known_rows, planned_problems, split_glance
from tasks.planning.stage_status import digests_to_compare, is_prepared_as, stage_statuses
from tasks.planning.step_times import Forecaster, step_forecaster
from tasks.planning.trials import answer_problems, hidden_options, may_try_reward, trial_problems, try_reward
from tasks.results.measured_memory import measured_peaks

_WITHOUT_STEPS = ("cluster", "memory", "rollout.gpu_memory_utilization", "rollout.cpu_kv_cache_gib")
"""Beginnings of what names a problem with which no worker could start."""

SHARES: Final = (0.25, 0.5, 1.0)
"""Mean lengths of responses, as shares of the longest, for which the seconds of a step are shown too."""


def planned_gpu(kind: str | None, gpu_gib: float | None, device: WorkerDevice) -> Gpu | None:
    """The GPU to plan for: of a kind, or with a memory, that this machine need not have; else this machine's, if it has
    one on which workers with this `cluster.device` compute. Raises ConfigError for a kind of which nothing is known."""
    if kind is None:
        return find_gpu(device) if gpu_gib is None else Gpu(memory_gib=gpu_gib, is_elsewhere=True)
    if kind not in CARDS:
        raise ConfigError(f"--gpu {shortened(kind)}: no such kind; known are {', '.join(CARDS)}")
    card = CARDS[kind]
    return Gpu(memory_gib=gpu_gib or card.memory_gib, is_elsewhere=True, name=card.name)


def print_plan(
    resolved: ResolvedRun, console: Console, *, gpu: Gpu | None, with_config: bool, tries_reward: bool = False
) -> int:
    """Show the plan for workers with this GPU, or on the CPU, and what the reward gives in a trial, if it is asked for.
    Returns 1 when the run could not work, else 0."""
    files = resolved.files()
    located = located_config(resolved.config, files)
    with own_family(located.model.family):
        return _print_plan(resolved, located, files, console, gpu=gpu, with_config=with_config, tries=tries_reward)


def _print_plan(
    resolved: ResolvedRun,
    located: RunConfig,
    files: NamedFiles,
    console: Console,
    *,
    gpu: Gpu | None,
    with_config: bool,
    tries: bool,
) -> int:
    config, run = resolved.config, resolved.run
    console.print(Text(run.name, style="bold").append(f"  {run.root}", style="not bold dim"), soft_wrap=True)
    if resolved.predecessor is not None:
        print_line(console, resolved.why_new, label="[yellow]note[/yellow]")
    is_prepared = resolved.is_continued and is_prepared_as(config, run, files)
    glances = {} if is_prepared else glance_at(located)
    answers = [] if is_prepared else ask_hub(located, seconds=SECONDS_OF_PLAN)
    problems = planned_problems(located, run, glances, answers, gpu=gpu)
    problems += files.problems()
    if tries and may_try_reward(config, problems):
        problems += _print_trial(located, console)
    elif not is_prepared:
        problems += answer_problems(located)
    if not is_prepared and not any(problem.fatal for problem in problems):
        problems += hidden_options(located, local_only=True)
    if not any(problem.fatal for problem in problems):
        with no_waiting(answers):
            problems += _print_stages(resolved, files, glances, console, gpu)
    # Where the run does not fit, the memory is the more worth showing; a run that cannot be has no step time.
    can_be = not any(problem.fatal and problem.where.startswith(_WITHOUT_STEPS) for problem in problems)
    print_forecast(located, run, console, gpu, with_step_time=can_be)
    code = print_problems(problems, console)
    if with_config:
        console.print(Syntax(dump_config(config), "yaml", background_color="default"))
    return code


def _print_trial(config: RunConfig, console: Console) -> list[Problem]:
    """Try the reward on the first rows, and print what it gave. Returns the problems."""
    trial = try_reward(config)
    title = f"{config.reward.description}, tried on responses to the first rows:"
    print_line(console, title, label="[bold]reward[/bold]")
    print_trial_table(trial.table, console)
    return trial_problems(config, trial)


def _print_stages(
    resolved: ResolvedRun, files: NamedFiles, glances: Mapping[str, Glance], console: Console, gpu: Gpu | None
) -> list[Problem]:
    """Print stages and batches. Returns the problems with the number of rows."""
    config, run = resolved.config, resolved.run
    train = split_glance(config.data.train, "data.train", glances) if glances else None
    try:
        digests = digests_to_compare(config, run, files, reuse=resolved.reuse)
    except (ValueError, OSError) as error:
        return [Problem(where="data", what=str(error), fix="correct what it names")]
    rows = known_rows(config, run, digests, train)
    plan = rows.plan(resolve_auto(config, model_sizes(config.model.source), gpu).config) if rows else None
    statuses = stage_statuses(config, run, digests, reuse=resolved.reuse, plan=plan, files=files)
    table = table_of("stage", "status", title="Stages")
    for status in statuses:
        table.add_row(status.stage, Text(status.status, style="green" if status.is_finished else ""))
    console.print(table)
    if plan is not None and rows is not None:
        print_batches(config, plan, console, rows_origin=rows.origin)
    return rows.problems(config) if rows else []


def print_batches(config: RunConfig, plan: BatchPlan, console: Console, *, rows_origin: str = "") -> None:
    """Print the numbers that follow from the batch sizes, and how a step is dealt to several workers; `rows_origin` is
    where a number of rows comes from that may still change."""
    table = table_of(title="Batches")
    if rows_origin:
        table.add_row("the rows", rows_origin)
    for name, value in plan_facts(config, plan).items():
        table.add_row(name, value)
    console.print(table)
    if rows := work_rows(config, plan):
        table = table_of("", "together", "each", title=workers_title(config))
        for row in rows:
            table.add_row(*row)
        console.print(table)


def print_forecast(
    config: RunConfig, run: RunDirectory, console: Console, gpu: Gpu | None, *, with_step_time: bool
) -> None:
    """Print what is trained in which number formats, and the forecast of memory, disk and, if asked, step time."""
    try:
        sizes = model_sizes(config.model.source)
    except (ValueError, OSError):
        return  # it is among the problems
    settings = resolve_auto(config, sizes, gpu)
    precision = _precision_words(config.model, config.actor.optim)
    engine = _engine_words(config.rollout, on_gpu=gpu is not None)
    console.print(f"trained: {_trained_words(config.model)}; precision: {precision}; engine: {engine}", highlight=False)
    console.print(f"settings: {_settings_words(settings)}", highlight=False)
    if config.tools is not None:
        console.print(f"longest conversation: {conversation_words(config, config.tools)}", highlight=False)
        if config.tools.schedule == "continuous":
            console.print(f"schedule: {CONTINUOUS_WORDS}", highlight=False)
    attention = attention_choice(config.model, has_gpu=gpu is not None)
    console.print(f"attention: {attention.backend} ({attention.why})", highlight=False)
    if gpu is None:
        console.print(f"threads: {threads_words(config.cluster)}", highlight=False)
    if sizes is None:
        console.print("memory and disk: not known: the model is not here yet, or its parameters could not be counted")
        return
    memory = memory_forecast(settings.config, sizes, gpu_gib=(gpu.memory_gib or 0.0) if gpu else None)
    disk = disk_bytes(config, sizes) / GIB
    console.print(
        f"{sizes.parameters / 1e6:,.1f} M parameters; about {_needed(memory, gpu)}, up to {disk:.1f} GiB of disk",
        highlight=False,
    )
    measured = measured_peaks(run, on_gpu=gpu is not None) if run.root.is_dir() else {}
    console.print(memory_table(memory, measured))
    if with_step_time:
        forecaster, words = step_forecaster(config, sizes, run, gpu)
        if forecaster is None:
            print_line(console, f"step time: {words}")
        else:
            console.print(step_time_table(config, forecaster, words))


def _trained_words(model: ModelConfig) -> str:
    if model.lora is not None:
        return f"LoRA adapters of rank {model.lora.rank}"
    return "all weights but the vision tower's" if model.freeze_vision_tower else "all weights"


def _precision_words(model: ModelConfig, optim: OptimConfig) -> str:
    """Number formats of forward and backward passes, of the generator and of the optimizer."""
    if model.dtype == "float32":
        return "float32 throughout"
    kept = "; gradients and first moment bfloat16" if optim.strategy == "adamw_bf16" else ""
    return f"{model.dtype} arithmetic, float32 master weights{kept}"


def _engine_words(rollout: RolloutConfig, *, on_gpu: bool) -> str:
    """Whether vLLM compiles the model, and who decided it."""
    chosen = "eager" if rollout.is_eager(on_gpu=on_gpu) else "compiled, with graphs"
    why = f"auto, on a {'GPU' if on_gpu else 'CPU'}" if rollout.enforce_eager == "auto" else "as configured"
    return f"{chosen} ({why})"


def threads_words(cluster: ClusterConfig) -> str:
    """The number of threads of each worker on CPUs, and what it comes from."""
    if cluster.threads is not None:
        why = "cluster.threads"
    elif asked_threads() is not None:
        why = "OMP_NUM_THREADS; cluster.threads would keep it on every machine"
    else:
        why = "its share of the cores here; cluster.threads would keep it on every machine"
    return f"{threads_of_a_worker(cluster.devices, fixed=cluster.threads)} for each worker ({why})"


CONTINUOUS_WORDS: Final = (
    "continuous (tools.schedule): the run does not repeat to the bit, because the time that tools take decides which "
    "turns are computed together; rounds do"
)


def conversation_words(config: RunConfig, tools: ToolsConfig) -> str:
    """The sum of a conversation that meets all limits, in tokens, by the keys that lower it."""
    opening = "" if tools.environment is None else f"what an environment shows first {tools.longest_opening:,} + "
    return (
        f"{longest_sequence(config):,} tokens = prompt {config.data.max_prompt_length:,} + {opening}"
        f"{tools.max_turns} turns of "
        f"{config.rollout.max_response_length:,} (tools.max_turns, rollout.max_response_length) + "
        f"{tools.max_turns - 1} results of {tools.max_result_length:,} (tools.max_result_length); up to "
        f"{tools.max_images} images besides those of the prompt (tools.max_images)"
    )


def _settings_words(settings: ResolvedSettings) -> str:
    if not settings.values:
        return "as configured"
    chosen = ", ".join(f"{key} {as_yaml(value)}" for key, value in settings.values.items())
    return f"{chosen} (auto: {settings.why})"


def _needed(memory: MemoryForecast, gpu: Gpu | None) -> str:
    workers = memory.workers_per_machine
    if gpu is None:
        shared = f" for {workers} workers" if workers > 1 else ""
        return f"{memory.machine_gib:.1f} GiB of the machine's memory{shared}"
    each = "each GPU" if workers > 1 else "the GPU"
    if gpu.memory_gib is None:
        return f"{memory.peak_gib:.1f} GiB of {each}, whose size is not known, without a KV cache"
    return f"{memory.peak_gib:.1f} of {gpu.memory_gib:.1f} GiB of {each}"


def memory_table(memory: MemoryForecast, measured: Mapping[str, float]) -> Table:
    """The forecast row by row: what is always there, then the phases, with what the run has taken so far."""
    figures = ["forecast", *(["measured"] if measured else [])]
    table = table_of("", *figures, "of which", title=f"Memory in GiB{_whose(memory)}", right=figures)
    kept = memory.rows_of("always")
    rows = [
        ("always, on those that train" if memory.is_split else "always", sum(row.gib for row in kept), _listed(kept)),
        *((phase, memory.phase_gib(phase), _moment(memory, phase)) for phase in get_args(Phase)),
        *([("machine's memory", memory.host_gib, _listed(memory.host_rows))] if memory.host_rows else []),
    ]
    for name, gib, parts in rows:
        peak = [f"{measured[name]:.2f}" if name in measured else ""] if measured else []
        table.add_row(name, f"{gib:.2f}", *peak, parts)
    return table


def _listed(rows: Sequence[MemoryRow]) -> str:
    return ", ".join(f"{row.name} {row.gib:.2f}" for row in rows)


def _moment(memory: MemoryForecast, phase: Phase) -> str:
    """What is there at the largest moment of a phase, and which moment that is where the phase has several."""
    moment, listed = memory.largest_moment(phase), _listed(memory.rows_of(phase))
    return f"{moment}: {listed}" if listed and moment != phase else listed


def _whose(memory: MemoryForecast) -> str:
    """Of which workers a forecast is, where there are several."""
    workers, generating = memory.workers_per_machine, memory.generating_per_machine
    if memory.is_split:
        return f", of each of {generating} worker(s) of a machine that generate and {workers - generating} that train"
    return f", of each of {workers} workers of a machine" if workers > 1 else ""


def step_time_table(config: RunConfig, forecaster: Forecaster, words: str) -> Table:
    """A row for each placement: the seconds of a step and of its parts, the fastest one marked, and those of a step
    with responses of other lengths. The title says for what the forecast is, and what it assumes."""
    title = f"Step time in seconds, a forecast for {words}; last, with responses of 25, 50 and 100 % of the longest"
    figures = ("generate", "update", "sync", "other", "step", *(f"{share:.0%}" for share in SHARES))
    table = table_of("placement", *figures, title=title, right=figures)
    rows = [(placed, forecaster.step_time(placed)) for placed in forecaster.placements(config)]
    fastest = min(time.step for _, time in rows)
    for placed, time in rows:
        others = [share * config.rollout.max_response_length for share in SHARES]
        steps = (forecaster.step_time(placed, response=response).step for response in others)
        seconds = (time.generate, time.update, time.sync, time.other, time.step, *steps)
        mark = ", fastest" if time.step == fastest and len(rows) > 1 else ""
        table.add_row(_placement_words(placed) + mark, *map(_shown, seconds))
    return table


def _placement_words(config: RunConfig) -> str:
    """`colocated`, `split, 2 of 8 generate`, or the same with `, one step off`."""
    cluster = config.cluster
    if not cluster.is_split:
        return "colocated"
    split = f"split, {cluster.generating_devices} of {cluster.devices} generate"
    return f"{split}, one step off" if config.rollout.staleness else split


def _shown(seconds: float) -> str:
    return f"{seconds:,.{0 if seconds >= 100 else 1 if seconds >= 10 else 2}f}"


def print_problems(problems: Sequence[Problem], console: Console) -> int:
    """Print the problems. Returns 1 if one of them is fatal, else 0."""
    for problem in problems:
        label = "[bold red]problem[/bold red]" if problem.fatal else "[yellow]warning[/yellow]"
        print_line(console, str(problem), label=label)
    return int(any(problem.fatal for problem in problems))
