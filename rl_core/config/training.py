"""The sections of training: `cold_start`, `rollout`, `actor`, `critic`, `trainer`."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from annotated_types import Ge, Gt, Lt
from pydantic import Field
from typing_extensions import override

from rl_core.config.data import Source
from rl_core.problem import Problem
from rl_core.section import Section
from rl_core.user_code.function import nearest

LOWEST_TEMPERATURE: Final = 0.01
"""vLLM raises a lower temperature above 0 to this one, so the responses would be sampled at another temperature than
the config says."""

HIGHEST_TEMPERATURE: Final = 2.0
"""vLLM refuses a higher temperature."""

CPU_SEQUENCES: Final = {"update": 4, "experience": 16}
"""What `auto` is on a CPU: longest sequences of a pass with a gradient, and of one without."""

CPU_GPU_SHARE: Final = 0.6
"""What `auto` is for `rollout.gpu_memory_utilization` where no GPU is known."""

AutoSequences = Annotated[int, Ge(1)] | Literal["auto"]
"""Longest sequences of a pass, or `auto`."""

Offload = Literal["none", "optimizer", "all"]
"""What a trainer keeps in the host's memory; each choice includes the one before it."""


class OptimConfig(Section):
    """AdamW and its learning-rate schedule."""

    lr: float = Field(default=1e-6, gt=0.0)
    """Learning rate after warm-up."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of AdamW's two moments."""
    eps: float = Field(default=1e-8, gt=0.0)
    """AdamW's epsilon."""
    weight_decay: float = Field(default=1e-2, ge=0.0)
    """Decoupled weight decay of matrices; biases and norms have none."""
    lr_warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the rate rises linearly, from 1/(warmup+1) of it."""
    lr_warmup_ratio: float = Field(default=0.0, ge=0.0, lt=1.0)
    """The same as a share of the training steps, rounded down; only one of the two may be set."""
    lr_scheduler_type: Literal["constant", "linear", "cosine", "wsd"] = "constant"
    """After the warm-up the rate stays `constant`, falls over the rest of the run along a line (`linear`) or half a
    cosine (`cosine`), or stays and falls along a line at the end of the run (`wsd`: warm-up, stable, decay)."""
    lr_decay_ratio: float = Field(default=0.1, gt=0.0, le=1.0)
    """The share of the run's steps over which `wsd` falls."""
    min_lr_ratio: float = Field(default=0.0, ge=0.0, le=1.0)
    """Learning rate at the end of the run, as a share of lr, unless the rate is constant."""
    strategy: Literal["adamw", "adamw_bf16"] = "adamw"
    """`adamw`: master weights, gradients and moments are float32. `adamw_bf16`: gradients and the first moment are
    bfloat16, which takes a quarter less memory."""

    @property
    def follows_length(self) -> bool:
        """Whether the rate of a step depends on how many steps the run has."""
        return self.lr_scheduler_type != "constant" or self.lr_warmup_ratio > 0.0

    @override
    def problems(self) -> Iterator[Problem]:
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            yield Problem("betas", f"{list(self.betas)} are no decay rates", "set both in [0, 1)")
        if self.lr_warmup_steps and self.lr_warmup_ratio:
            yield Problem(
                "lr_warmup_ratio",
                f"{self.lr_warmup_ratio:g} of the run and lr_warmup_steps {self.lr_warmup_steps} are two lengths of "
                "the same warm-up",
                "set one of them to 0",
            )


_ANSWER_ALONE: Final = "{{ answer }}"


class ColdStartConfig(Section):
    """A short supervised stage before RL that teaches the form of an answer."""

    source: Source | None = None
    """Rows to imitate; null takes the training rows."""
    target_template: str = _ANSWER_ALONE
    """Jinja template of the response to imitate, with the variables `answer` and `question`."""
    steps: int = Field(ge=1)
    """Optimizer steps."""
    batch_size: int = Field(default=64, ge=1)
    """Rows of an optimizer step."""
    optim: OptimConfig = OptimConfig(lr=1e-5)
    """Optimizer of this stage."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradient norm above which the gradient is scaled down."""

    @property
    def form_of_answers(self) -> str | None:
        """The template that makes a response of a training row's answer; None where only rows of their own, whose
        answers are whole responses, are imitated."""
        imitates_responses = self.source is not None and self.target_template == _ANSWER_ALONE
        return None if imitates_responses else self.target_template

    @override
    def problems(self) -> Iterator[Problem]:
        if self.optim.lr_warmup_steps >= self.steps:
            yield Problem(
                "optim.lr_warmup_steps",
                f"a warm-up of {self.optim.lr_warmup_steps} steps never ends within {self.steps} steps",
                f"set it to {self.steps // 10} or so",
                fatal=False,
            )


class RolloutConfig(Section):
    """How responses are generated in training."""

    n: int = Field(default=8, ge=1)
    """Responses to each prompt, the size of a group; estimators that compare within it need 2 or more."""
    staleness: Literal[0, 1] = 0
    """How many steps the rollouts wait before they are learned from. 1 is one step off-policy, where
    algorithm.old_log_probs is `recompute` and algorithm.correction `{type: tis}` by default."""
    temperature: float = Field(default=1.0, ge=LOWEST_TEMPERATURE, le=HIGHEST_TEMPERATURE)
    """Sampling temperature, also of the trainer's log-probs; there is no top_p, top_k or min_p in training."""
    max_response_length: int = Field(default=512, ge=1)
    """Longest response, in tokens."""
    gpu_memory_utilization: Annotated[float, Gt(0.0), Lt(1.0)] | Literal["auto"] = "auto"
    """Share of the GPU's memory that vLLM may take; `auto` is what the trainer leaves."""
    cpu_kv_cache_gib: int = Field(default=1, ge=1)
    """Size of vLLM's KV cache on a CPU, in GiB."""
    max_num_seqs: int = Field(default=512, ge=1)
    """Most responses that the generator decodes at one time."""
    enforce_eager: bool | Literal["auto"] = "auto"
    """Run vLLM without compiling and without CUDA graphs; `auto` is false on a GPU and true on a CPU."""
    max_log_prob_gap: float | None = Field(default=None, gt=0.0)
    """The run stops when generator and trainer differ by more than this in the log-probs of more than one token in a
    thousand of an optimizer batch; null is 1e-3 in float32 and 5 in bfloat16."""
    max_mean_log_prob_gap: float | None = Field(default=None, gt=0.0)
    """The same for the mean difference; null is 1e-4 in float32 and 0.1 in bfloat16, where 0.03 is usual."""
    min_log_prob_correlation: float | None = Field(default=None, ge=0.0, le=1.0)
    """The run stops when these log-probs correlate by less than this, unless rounding can explain it; null is 0.9."""

    def is_eager(self, *, on_gpu: bool) -> bool:
        """Whether vLLM runs without compiling on a machine with or without a GPU."""
        return not on_gpu if self.enforce_eager == "auto" else self.enforce_eager

    @property
    def gpu_share(self) -> float:
        """The share of the GPU's memory for vLLM; `auto` counts as `CPU_GPU_SHARE` until it is resolved."""
        return CPU_GPU_SHARE if self.gpu_memory_utilization == "auto" else self.gpu_memory_utilization


class UpdateConfig(Section):
    """What the updates of policy and critic have in common."""

    global_batch_size: int = Field(default=128, ge=1, le=1_000_000)
    """Prompts of an optimizer step; data.rollout_batch_size must be a multiple of it."""
    ppo_epochs: int = Field(default=1, ge=1)
    """Passes over a rollout batch."""
    micro_batch_size_per_device_for_update: AutoSequences = "auto"
    """Token budget of a forward and backward pass: this times (data.max_prompt_length + rollout.max_response_length).
    `auto` is 4 on a CPU, and on a GPU as many as fit."""
    micro_batch_size_per_device_for_experience: AutoSequences = "auto"
    """The same for passes of the reference and for the critic's values; `auto` is 16 on a CPU, and on a GPU four times
    the update's."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradient norm above which the gradient is scaled down."""
    optim: OptimConfig = OptimConfig()
    """Optimizer."""

    @property
    def update_sequences(self) -> int:
        """Longest sequences of a pass with a gradient; `auto` counts as the CPU's number until it is resolved."""
        chosen = self.micro_batch_size_per_device_for_update
        return CPU_SEQUENCES["update"] if chosen == "auto" else chosen

    @property
    def experience_sequences(self) -> int:
        """The same of a pass without a gradient."""
        chosen = self.micro_batch_size_per_device_for_experience
        return CPU_SEQUENCES["experience"] if chosen == "auto" else chosen


class ActorConfig(UpdateConfig):
    """The policy update."""


class CriticConfig(UpdateConfig):
    """The critic of `algorithm.advantage: {type: gae}`, a value model with the body of the model that RL starts
    from."""

    cliprange_value: float = Field(default=0.5, gt=0.0)
    """How far a value may move within a step and still lower the loss."""
    loss_avg_mode: Literal["token", "seq", "seq_sum_norm"] = "token"
    """How the value loss is averaged, as in `algorithm.loss_avg_mode`."""
    optim: OptimConfig = OptimConfig(lr=1e-5)
    """Optimizer."""


_METRIC_GROUPS: Final = (
    *("actor", "agreement", "critic", "filter", "kl", "off_policy", "prompt_length", "response_length", "reward"),
    "val",
)
VALIDATION_METRICS: Final = tuple(
    f"val/{name}" for name in ("accuracy", "failed", "reward", "response_length", "truncation_rate")
)
"""The metrics of a validation."""


class StopAt(Section):
    """A value of a metric at which the training ends."""

    metric: str
    """Its name in metrics.jsonl, such as `val/accuracy`, which a validation measures, or `reward/overall`."""
    value: float | None = None
    """The training ends where the metric is this or more."""
    at_most: float | None = None
    """The training ends where the metric is this or less, for one that falls (`response_length/clip_ratio`); instead of
    `value`."""
    patience: int = Field(default=1, ge=1)
    """How many measurements in a row have to reach the value; the validation before the first step does not count."""

    @override
    def problems(self) -> Iterator[Problem]:
        if (self.value is None) == (self.at_most is None):
            yield Problem("value", "one of value and at_most says where the training ends", "set one of them")
        group = self.metric.partition("/")[0]
        known = VALIDATION_METRICS if group == "val" else (*VALIDATION_METRICS, "reward/overall", "reward/accuracy")
        is_of_source = group == "val" and self.metric.count("/") > 1 and self.metric.endswith("/accuracy")
        if group not in _METRIC_GROUPS or (group == "val" and self.metric not in known and not is_of_source):
            what = f"no metric is called {self.metric!r}{nearest(self.metric, known)}"
            yield Problem("metric", what, "name a metric of docs/metrics.md")

    def is_reached(self, measured: float) -> bool:
        """Whether a measurement is where the training ends."""
        if self.at_most is not None:
            return measured <= self.at_most
        return self.value is not None and measured >= self.value


class TrainerConfig(Section):
    """Length of the run, validation, checkpoints."""

    total_epochs: int = Field(default=15, ge=1)
    """Passes over the training rows."""
    max_steps: int | None = Field(default=None, ge=1)
    """Stop after this many steps, whatever the epochs say."""
    val_freq: int = Field(default=-1, ge=-1)
    """Validate every so many steps; -1 never validates."""
    val_before_train: bool = True
    """Validate once before the first step too, where val_freq is above 0. The evaluation of the base model takes these
    answers, or they are taken from it."""
    val_mode: Literal["greedy", "sampled"] = "greedy"
    """One response to each held-out row at temperature 0 (`greedy`), or `evaluation.n` at the evaluation's temperature
    and top_p (`sampled`)."""
    save_freq: int = Field(default=5, ge=1)
    """Save a checkpoint every so many steps; the end of the run is always saved."""
    save_on_epoch_end: bool = True
    """Save a checkpoint at the end of each epoch too."""
    save_limit: int = Field(default=3, ge=1)
    """How many of the newest checkpoints are kept, besides the best one by validation."""
    save_model_only: bool = False
    """Leave the optimizers' moments out of checkpoints; a run that continues from one then computes other numbers."""
    offload: Offload | Literal["auto"] = "auto"
    """What the trainer keeps in the host's memory: moments and lower bits of master weights (`optimizer`), and also the
    reference and the critic while they do not compute (`all`). `auto` is the first with which the run fits, on a CPU
    `none`. It changes no number."""
    async_save: bool = True
    """Write a checkpoint while the next step runs, from a copy in the host's memory."""
    critic_warmup: int = Field(default=0, ge=0)
    """The first step that trains the policy; earlier steps train the critic alone."""
    max_nonfinite_steps: int = Field(default=3, ge=1)
    """The run ends after this many optimizer steps in a row were skipped for a non-finite gradient."""
    stop_at: StopAt | None = None
    """Ends the training early, with a checkpoint; evaluation and merge follow as at its end."""
    stop_without_signal: int | None = Field(default=None, ge=1)
    """The run ends after this many steps in a row that teach nothing: all rewards, or those of each group, are equal,
    or the learning rate is 0. Without it the run warns from the second one on."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.val_freq == 0:
            yield Problem(
                "val_freq",
                "0 is neither a number of steps nor -1 (never)",
                "set -1 to never validate, or validate every so many steps",
            )
        if self.stop_at is not None and self.stop_at.metric.startswith("val/") and self.val_freq < 1:
            yield Problem(
                "stop_at.metric",
                f"{self.stop_at.metric} is measured by validations, and val_freq {self.val_freq} never validates",
                "validate every so many steps, such as val_freq 5",
            )
        if self.save_model_only:
            yield Problem(
                "save_model_only",
                "a run that is killed continues without the optimizer's moments, and so computes other numbers",
                "set it to false unless disk is short",
                fatal=False,
            )

    @property
    def offloads(self) -> Offload:
        """What is kept in the host's memory; `auto` counts as nothing until it is resolved."""
        return "none" if self.offload == "auto" else self.offload

    def validates_at(self, step: int) -> bool:
        """Whether the held-out prompts are answered after `step`; 0 is the time before the first one."""
        if self.val_freq < 1:
            return False
        return step % self.val_freq == 0 if step else self.val_before_train
