"""Collects the contents of the report from a run's folder."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from rl_core.config.loading import dump_config
from rl_core.config.model import TinyModel
from rl_core.config.tolerances import agreement_bounds
from rl_core.data.images import ImageStore
from rl_core.data.manifest import DataManifest
from rl_core.data.prepared import IMAGES_FILE
from rl_core.evaluation.comparison import ItemPair, pick_gallery
from rl_core.files import read_json
from rl_core.planning.certificates import certificate_words
from rl_core.planning.memory import memory_forecast
from rl_core.planning.memory_rows import Phase
from rl_core.planning.model_sizes import ModelSizes, read_sizes
from rl_core.planning.settings import resolve_auto
from rl_core.run_directory import RunDirectory
from rl_core.wording import duration
from tasks.cache.manifests import StageManifest, reached_target
from tasks.results.measured_memory import measured_peaks, recorded_machine
from tasks.results.report_charts import MOST_SERIES, Chart, Series
from tasks.results.report_page import (
    Fact,
    GalleryItem,
    PhaseMemory,
    ReportPage,
    TimeShare,
    image_uri,
)
from tasks.results.run_facts import (
    EVALUATED_MODELS,
    RunFacts,
    algorithm_name,
    changes_in_words,
    losses_in_words,
    throughput,
    validation_history,
)
from tasks.results.verdict import outcome, remarks, verdict
from tasks.results.worker_rows import timeline, worker_rows

Records = Sequence[Mapping[str, Any]]

_OPENED_IMAGE_SIDE = 640

logger = logging.getLogger(__name__)


def report_page(facts: RunFacts, *, commands: Mapping[str, str]) -> ReportPage:
    """Everything that the report shows. Raises FileNotFoundError where the run was not evaluated."""
    stages = facts.stages
    trained = last_epoch(stages)
    return ReportPage(
        run=facts.run.name,
        experiment=facts.config.experiment,
        finished_at=stages[-1].finished_at.replace("T", " ").replace("+00:00", " UTC"),
        base=facts.headline("base"),
        trained=facts.headline("trained"),
        comparison=facts.comparison(),
        verdict=verdict(facts),
        outcome=outcome(facts),
        look_at=remarks(facts),
        changes=changes_in_words(facts.run),
        facts=_key_figures(facts, trained),
        charts=charts(facts),
        evaluations=[
            (evaluated, result) for evaluated in EVALUATED_MODELS for result in facts.results(evaluated).values()
        ],
        stages=[
            TimeShare(
                name=manifest.stage.replace("-", " "),
                seconds=manifest.seconds,
                note=f"from {manifest.reused_from}" if manifest.reused_from else "",
            )
            for manifest in stages
        ],
        phases=_step_phases(facts.timings),
        memory=_phase_memory(facts),
        losses=losses_in_words(facts.run),
        workers=worker_rows(facts.timings),
        timeline=timeline(facts.timings),
        gallery=gallery_items(facts),
        commands=commands,
        config=dump_config(facts.config),
        versions=dict(trained.result["versions"]) if trained else {},
    )


def charts(facts: RunFacts) -> list[Chart]:
    """The curves, what was learned first: reward by its parts, accuracy, signal, length, gradient, KL, learning rate,
    entropy, and the difference between generator and trainer."""
    config, mode = facts.config, facts.config.trainer.val_mode
    bound = agreement_bounds(config).percentile

    def chart(title: str, caption: str, lines: Mapping[str, str], **more: Any) -> Chart:
        series = [_series(facts.metrics, name, label) for name, label in lines.items()]
        return Chart(title=title, caption=caption, series=[line for line in series if line.values], **more)

    return [
        chart(
            "Reward",
            "Mean over a step's rollouts: what is optimised, and the parts that the reward function names.",
            {"reward/overall": "reward", **reward_parts(facts.metrics)},
        ),
        chart(
            "Accuracy",
            f"Share of right answers: sampled in training, {mode} on held-out items.",
            {
                f"reward/{config.evaluation.accuracy_key}": "training rollouts",
                "val/accuracy": f"held-out, {mode}",
                **{f"val/{name}/accuracy": f"held-out, {name}" for name in config.data.validation.parts},
            },
            unit="share",
        ),
        chart(
            "Signal",
            "Groups with equal rewards teach nothing.",
            {
                "reward/zero_std_groups": "groups with equal rewards",
                "filter/kept_share": "groups that passed the filter",
            },
            unit="share",
        ),
        chart(
            "Response length",
            "Tokens a response.",
            {
                "response_length/mean": "mean",
                "response_length/max": "longest",
                "response_length/min": "shortest",
            },
        ),
        chart(
            "Cut responses",
            f"Share of the responses that reached {config.rollout.max_response_length} tokens.",
            {"response_length/clip_ratio": "training rollouts", "val/truncation_rate": f"held-out, {mode}"},
            unit="share",
        ),
        chart(
            "Gradient norm",
            f"Before clipping, which begins at {config.actor.max_grad_norm:g}.",
            {"actor/grad_norm": "policy", "critic/grad_norm": "critic"},
        ),
        chart(
            "KL",
            "How far a step moves the policy, and how far it is from the reference where one is kept.",
            {
                "actor/approx_kl": "within the step",
                "actor/kl_loss": "to the reference",
                "kl/reference": "to the reference, in the reward",
            },
        ),
        chart(
            "Tools",
            "Mean of a response. Where calls fall to 0 nothing rewards them, or the model does better without.",
            {"tools/turns": "turns of the model", "tools/calls": "calls", "tools/images": "images shown"},
        ),
        chart(
            "Calls without an answer",
            "Of all responses to a step's prompts.",
            {"tools/invalid_calls": "the model's mistakes", "tools/failed_calls": "failures of a tool"},
        ),
        chart("Learning rate", "Of a step's last optimizer step.", {"actor/lr": "policy", "critic/lr": "critic"}),
        chart("Entropy", "Mean entropy of the next token, nats.", {"actor/entropy": "entropy"}),
        chart(
            "Log-prob gap",
            "Differences between the log-probs of generator and trainer; the run stops when their 99.9th percentile "
            "exceeds the bound. Where the largest, dashed, lies on the percentile, a step has few tokens.",
            {"agreement/log_prob_gap_p999": "99.9th percentile", "agreement/log_prob_gap_max": _LARGEST},
            log=True,
            bound=(bound, f"bound {bound:g}"),
        ),
    ]


_LARGEST = "largest"
_OF_REWARDS = {"reward/overall", "reward/failed", "reward/group_std", "reward/zero_std_groups", "reward/greedy"}


def reward_parts(metrics: Records) -> dict[str, str]:
    """[metric] -> name of the reward's components besides `overall`, as many as a chart has colours for."""
    names = dict.fromkeys(name for record in metrics for name in record if re.fullmatch(r"reward/[^/]+", name))
    parts = [name for name in names if name not in _OF_REWARDS]
    return {name: name.removeprefix("reward/") for name in parts[: MOST_SERIES - 1]}


def _series(metrics: Records, name: str, label: str) -> Series:
    found = [(record["step"], record[name]) for record in metrics if name in record]
    steps, values = [step for step, _ in found], [value for _, value in found]
    return Series(label=label, steps=steps, values=values, is_dashed=label == _LARGEST)


def _step_phases(timings: Records) -> list[TimeShare]:
    """Mean seconds of a step's phases, in the order in which they happen."""
    names = [name for name in (timings[-1] if timings else ()) if name.endswith("_s") and name != "total_s"]
    phases = [name for name in names if "_per_" not in name]
    means = {name: sum(record.get(name, 0.0) for record in timings) / len(timings) for name in phases}
    ordered = sorted(means, key=lambda name: (_PHASES.index(name) if name in _PHASES else len(_PHASES), name))
    return [TimeShare(name=name.removesuffix("_s").replace("_", " "), seconds=means[name]) for name in ordered]


_PHASES = (
    *(
        "sync_s",
        "generate_s",
        "tool_wait_s",
        "reward_wait_s",
        "agreement_s",
        "old_log_probs_s",
        "reference_s",
        "values_s",
    ),
    *("forward_backward_s", "exchange_s", "optimizer_s", "update_critic_s", "update_s", "checkpoint_wait_s", "other_s"),
)


def _phase_memory(facts: RunFacts) -> list[PhaseMemory]:
    gpu, is_known = recorded_machine(facts.run)
    measured = measured_peaks(facts.run, on_gpu=gpu is not None)
    if not measured:
        return []
    sizes = _sizes(facts)
    forecast = None
    if sizes is not None and is_known:
        resolved = resolve_auto(facts.config, sizes, gpu).config
        forecast = memory_forecast(resolved, sizes, gpu_gib=gpu.memory_gib if gpu else None)
    return [
        PhaseMemory(
            name=phase, forecast=None if forecast is None else forecast.phase_gib(phase), measured=measured.get(phase)
        )
        for phase in get_args(Phase)
    ]


def gallery_rows(facts: RunFacts) -> list[ItemPair]:
    """The held-out items that the report and MLflow show."""
    pair = facts.paired_items()
    count = facts.config.tracking.gallery_items
    return pick_gallery(*pair, count=count) if pair and count else []


def gallery_items(facts: RunFacts) -> list[GalleryItem]:
    """The gallery with images, and with the responses of validations."""
    rows = gallery_rows(facts)
    history = validation_history(facts.run) if rows else {}
    images = open_images(facts.run)

    def uri(uid: str) -> str:
        return image_uri(images.image(uid), largest=_OPENED_IMAGE_SIDE)

    found = []
    for base, trained in rows:
        while_training = history.get(base.uid, ())
        answers = [base, trained, *(item for _, item in while_training)]
        shown = {uid: uri(uid) for item in answers for turn in item.turns for uid in turn.get("image_uids", ())}
        uris = [uri(uid) for uid in base.image_uids]
        found.append(GalleryItem(images=uris, shown=shown, base=base, trained=trained, while_training=while_training))
    return found


def open_images(run: RunDirectory) -> ImageStore:
    """The run's images."""
    return ImageStore(run.data / IMAGES_FILE)


def _key_figures(facts: RunFacts, trained: StageManifest | None) -> list[Fact]:
    rewards = _series(facts.metrics, "reward/overall", "reward").values
    rates, stages = throughput(facts.timings), facts.stages
    epochs = sum(manifest.stage.startswith("train-epoch-") for manifest in stages)
    early = ", ended by trainer.stop_at" if trained and reached_target(trained) else ""
    figures = [
        *_recipe(facts),
        Fact(label="Steps", value=f"{len(rewards)}", note=f"in {epochs} epoch{'s' * (epochs != 1)}{early}"),
        Fact(
            label="Speed",
            value=f"{rates['samples_per_s']:.0f}/s",
            note=f"samples; {rates['tokens_per_s']:,.0f} tokens/s",
        ),
        Fact(label="Wall time", value=duration(sum(manifest.seconds for manifest in stages)), note="all stages"),
        _model_figure(facts),
    ]
    if rewards:
        reward = f"{rewards[0]:.2f} → {rewards[-1]:.2f}"
        figures.insert(len(_recipe(facts)), Fact(label="Reward", value=reward, note="first and last step"))
    if trained:
        figures.append(Fact(label="Attention", value=trained.result["attention"], note=trained.result["device"]))
    return figures


def _recipe(facts: RunFacts) -> list[Fact]:
    """What makes this run another one than its neighbours."""
    config, splits = facts.config, DataManifest.read(facts.run.data).splits
    optim = config.actor.optim
    warm_up = f"{optim.lr_warmup_ratio:.0%} of the run" if optim.lr_warmup_ratio else f"{optim.lr_warmup_steps} steps"
    return [
        Fact(label="Algorithm", value=algorithm_name(config.algorithm), note=f"{config.rollout.n} responses a prompt"),
        Fact(label="Data", value=f"{splits['train'].rows:,} rows", note=splits["train"].source),
        Fact(label="Seed", value=f"{config.seed}", note="one run"),
        Fact(label="Learning rate", value=f"{optim.lr:g}", note=f"{optim.lr_scheduler_type}, warm-up {warm_up}"),
    ]


def _model_figure(facts: RunFacts) -> Fact:
    source = facts.config.model.source
    name = source.family if isinstance(source, TinyModel) else source.path.rstrip("/").rpartition("/")[2]
    sizes, count, certificate = _sizes(facts), "", ""
    if sizes is not None:
        millions = sizes.parameters / 1e6
        count = f"{millions / 1e3:.1f} B parameters, " if millions >= 1e3 else f"{millions:.1f} M parameters, "
        words = certificate_words(read_json(facts.run.initial_model / "config.json"))
        certificate = f"; certificate: {words}"
    return Fact(label="Model", value=name, note=f"{count}{facts.config.model.dtype}{certificate}")


def _sizes(facts: RunFacts) -> ModelSizes | None:
    try:
        return read_sizes(facts.run.initial_model / "config.json")
    except ValueError as error:
        logger.warning("the report does not say how large the model is: %s", error)
        return None


def last_epoch(stages: Sequence[StageManifest]) -> StageManifest | None:
    """The last epoch that was trained; None where there is none."""
    return next((manifest for manifest in reversed(stages) if manifest.stage.startswith("train-epoch-")), None)
