"""TRL's side: GRPOTrainer on the same weights, rows, order and reward. docs/benchmarks.md argues every setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    PreTrainedModel,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

from benchmarks.speed.side import SideResult, StepClock, package_versions, parse_side
from rl_core.config.loading import load_config
from rl_core.config.reward import RewardConfig
from rl_core.config.run import RunConfig
from rl_core.config.training import OptimConfig
from rl_core.data.loader import PromptLoader
from rl_core.data.prepared import PreparedDataset
from rl_core.data.prompts import PromptTemplate
from rl_core.models.loading import banned_token_ids, has_vision, load_architecture
from rl_core.rewards.calling import load_scorer
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.sample import RewardSample
from rl_core.run_directory import RunDirectory
from rl_core.sources.conversation import IMAGE_PLACE
from rl_core.training.optimizer import scheduled_lr
from rl_core.types import Prompt


class ClockCallback(TrainerCallback):
    """Reads the clock after every fourth optimizer step: the end of what Sightline calls a step."""

    def __init__(self, optimizer_steps: int) -> None:
        self.clock = StepClock()
        self._optimizer_steps = optimizer_steps

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.clock.tick()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._optimizer_steps == 0:
            self.clock.tick()


class SameReward:
    """Sightline's configured reward on TRL's completions; keeps each step's mean."""

    __name__ = "reward"

    def __init__(self, config: RewardConfig, prompts: Sequence[Prompt]) -> None:
        self._score: Any = load_scorer(resolve_rewards(config).specs[0]).score
        self._prompts = prompts
        self.means: list[float] = []

    def __call__(self, completions: Sequence[Any], row: Sequence[int], **kwargs: Any) -> list[float]:
        scores = [
            self._score(RewardSample.of_text(self._prompts[number], completion[0]["content"]))["overall"]
            for number, completion in zip(row, completions, strict=True)
        ]
        self.means.append(sum(scores) / len(scores))
        return scores


class SameRateTrainer(GRPOTrainer):
    """GRPOTrainer with Sightline's warm-up, whose first step TRL's own schedules would take at a rate of zero."""

    def __init__(self, *, optim: OptimConfig, **arguments: Any) -> None:
        self._optim = optim
        super().__init__(**arguments)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        self.lr_scheduler = LambdaLR(
            optimizer or self.optimizer,
            lambda step: scheduled_lr(step, config=self._optim, total_steps=num_training_steps) / self._optim.lr,
        )
        return self.lr_scheduler


def ordered_prompts(dataset: PreparedDataset, config: RunConfig, steps: int) -> list[Prompt]:
    """The prompts of the first steps in the order in which Sightline's loader hands them out."""
    loader = PromptLoader(
        dataset, batch_size=config.data.rollout_batch_size, seed=config.seed, shuffle=config.data.shuffle
    )
    return [prompt for _ in range(steps) for prompt in loader.next_batch()]


def conversations(prompts: Sequence[Prompt], dataset: PreparedDataset, template: PromptTemplate) -> Dataset:
    """Rows as TRL takes them, with at most one image each. Images are decoded once, before the clock starts: TRL
    fetches every row 32 times."""
    images = [[dataset.images.image(uid) for uid in prompt.image_uids] for prompt in prompts]
    texts = [template.render(prompt.question).replace(IMAGE_PLACE, "") for prompt in prompts]

    def fetch(batch: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        rows = list(batch["row"])
        shown = {"images": [images[row] for row in rows]} if images[0] else {}
        return {"prompt": [[{"role": "user", "content": texts[row]}] for row in rows], **shown, "row": rows}

    return Dataset.from_dict({"row": list(range(len(prompts)))}).with_transform(fetch)


def trl_config(
    config: RunConfig,
    *,
    steps: int,
    base_model: Path,
    output: Path,
    micro_batch: int | None = None,
    generation: str = "padded",
) -> GRPOConfig:
    """TRL's settings for what Sightline's config says; anything else is the fastest choice that was found. A
    micro-batch has so many samples, all of an optimizer step where it is not given."""
    group = config.rollout.n
    samples = config.actor.global_batch_size * group
    accumulated = samples // (micro_batch or samples)
    optimizer_steps = config.data.rollout_batch_size // config.actor.global_batch_size
    optim = config.actor.optim
    return GRPOConfig(
        output_dir=str(output),
        seed=config.seed,
        max_steps=steps * optimizer_steps,
        per_device_train_batch_size=samples // accumulated,
        gradient_accumulation_steps=accumulated,
        steps_per_generation=optimizer_steps * accumulated,
        num_generations=group,
        max_completion_length=config.rollout.max_response_length,
        temperature=config.rollout.temperature,
        top_p=1.0,
        top_k=0,
        generation_kwargs={"suppress_tokens": list(banned_token_ids(base_model))},
        shuffle_dataset=False,
        learning_rate=optim.lr,
        adam_beta1=optim.betas[0],
        adam_beta2=optim.betas[1],
        adam_epsilon=optim.eps,
        weight_decay=optim.weight_decay,
        max_grad_norm=config.actor.max_grad_norm,
        optim="adamw_torch_fused",
        epsilon=config.algorithm.loss.clip_ratio_low,
        epsilon_high=config.algorithm.loss.clip_ratio_high,
        beta=0.0,
        loss_type="bnpo",
        scale_rewards="group",
        use_transformers_continuous_batching=generation == "continuous",
        use_vllm=generation == "vllm",
        vllm_mode="colocate",
        use_cpu=True,
        bf16=config.model.dtype == "bfloat16",
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def main() -> None:
    arguments = parse_side()
    torch.set_num_threads(arguments.threads)
    config = load_config(arguments.config, [f"seed={arguments.seed}", *arguments.settings])
    run = RunDirectory(arguments.work)
    dataset = PreparedDataset.open(run.data, "train")
    prompts = ordered_prompts(dataset, config, arguments.steps)
    rows = conversations(prompts, dataset, PromptTemplate.load(config.data.prompt_template))
    reward = SameReward(config.reward, prompts)
    callback = ClockCallback(config.data.rollout_batch_size // config.actor.global_batch_size)
    trainer = SameRateTrainer(
        optim=config.actor.optim,
        model=load_model(run.base_model, config),
        processing_class=AutoProcessor.from_pretrained(run.base_model, padding_side="left"),
        reward_funcs=reward,
        args=trl_config(
            config,
            steps=arguments.steps,
            base_model=run.base_model,
            output=arguments.work / "trl",
            micro_batch=arguments.micro_batch,
            generation=arguments.generation,
        ),
        train_dataset=rows,
        callbacks=[callback],
    )
    check_token_ids(trainer, rows, prompts)
    trainer.train()
    SideResult(
        side="trl",
        seed=arguments.seed,
        step_ends=callback.clock.wall,
        cpu_seconds=callback.clock.cpu,
        rewards=reward.means,
        load_averages=callback.clock.load,
        packages=package_versions("trl", "torch", "transformers", "accelerate", "datasets"),
    ).write(arguments.out)


def load_model(folder: Path, config: RunConfig) -> PreTrainedModel:
    """Weights in float32, as Sightline's optimizer has them; with bfloat16, TRL computes in it by autocast."""
    factory = AutoModelForImageTextToText if has_vision(load_architecture(folder)) else AutoModelForCausalLM
    model: PreTrainedModel = factory.from_pretrained(folder, dtype=torch.float32)
    return model


def check_token_ids(trainer: GRPOTrainer, rows: Dataset, prompts: Sequence[Prompt]) -> None:
    """Both sides must see the same prompt, to the token. Raises ValueError where they do not."""
    first = rows[0]
    text = first["prompt"][0]["content"]
    shown = [{"type": "image", "image": image} for image in first.get("images", [])]
    content = [*shown, {"type": "text", "text": text}] if shown else text
    token_ids = trainer.processing_class.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"]
    token_ids = token_ids[0] if shown else token_ids  # a processor of images answers with a batch
    if token_ids != prompts[0].token_ids.tolist():
        raise ValueError(f"TRL reads {token_ids}, Sightline {prompts[0].token_ids.tolist()}")


if __name__ == "__main__":
    main()
