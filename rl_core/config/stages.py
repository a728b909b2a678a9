"""The sections around training: `evaluation`, `merge`, `tracking`, `storage`, `planning`, `published`."""

import os
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from annotated_types import MaxLen, MinLen
from pydantic import Field, field_validator
from typing_extensions import override

from rl_core.config.training import HIGHEST_TEMPERATURE, LOWEST_TEMPERATURE
from rl_core.problem import Problem
from rl_core.section import Section, without_password


class EvaluationConfig(Section):
    """How the base and the trained model are compared on the held-out rows."""

    n: int = Field(default=1, ge=1)
    """Responses to each item in the sampled pass."""
    temperature: float = Field(default=0.6, ge=0.0, le=HIGHEST_TEMPERATURE)
    """Temperature of the sampled pass: 0, or at least 0.01."""
    top_p: float = Field(default=0.95, gt=0.0, le=1.0)
    """Nucleus mass of the sampled pass."""
    modes: tuple[Literal["greedy", "sampled"], ...] = ("greedy", "sampled")
    """Which passes are run; the first gives the headline accuracy."""
    accuracy_key: str = "accuracy"
    """Reward component that is 0.5 or more for a right response."""
    tools: Literal["same", "none"] = "same"
    """How held-out rows are answered where the run has `tools`, in validations too: with these, or in one turn of a
    model that is offered none."""
    limit: int | None = Field(default=None, ge=1)
    """Evaluate only the first items."""
    categories: tuple[str, ...] = ()
    """Columns of the held-out rows by whose values the accuracy is split, such as `problem_type_graph` of a Geometry3K
    folder."""

    @override
    def problems(self) -> Iterator[Problem]:
        if not self.modes or len(set(self.modes)) < len(self.modes):
            yield Problem(
                "modes",
                f"{list(self.modes)} must name at least one pass, and none twice",
                "set [greedy], [sampled] or both",
            )

    @field_validator("temperature")
    @classmethod
    def _is_sampled_at_as_it_stands(cls, temperature: float) -> float:
        if 0.0 < temperature < LOWEST_TEMPERATURE:
            raise ValueError(f"vLLM would sample at {LOWEST_TEMPERATURE}: set 0, or {LOWEST_TEMPERATURE} and more")
        return temperature


class MergeConfig(Section):
    """The merged model: the trained model as one Hugging Face folder."""

    checkpoint: Literal["last", "best"] = "last"
    """Which checkpoint is evaluated and merged."""
    probe_tolerance: float | None = Field(default=None, gt=0.0)
    """Largest difference of a log-prob of the probe in the merged model; the mean must stay below a tenth of it, and a
    trainer that continues from a checkpoint below a tenth of both. Null is 1e-4 in float32 and 1 in bfloat16."""
    push: str | None = None
    """`owner/name` of the private repository on the hub that the model is uploaded to; null uploads nothing."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.push is not None and re.fullmatch(r"[\w.-]+/[\w.-]+", self.push, re.ASCII) is None:
            yield Problem(
                "push",
                f"{self.push!r} cannot be the name of a repository on the hub",
                "write it as owner/name, in letters, digits, '-', '_' and '.'",
            )


class WandbConfig(Section):
    """Weights & Biases."""

    mode: Literal["online", "offline"] = "online"
    """`online` sends to the server of WANDB_BASE_URL, with WANDB_API_KEY or `wandb login`; `offline` writes the run's
    folder `wandb/`, for `wandb sync`."""
    project: str | None = None
    """Project in Weights & Biases; null takes the experiment's name."""
    entity: str | None = None
    """Team or user; null takes the account's default."""
    name: str | None = None
    """Name that the pages show; null takes the run's name. The run is found again by its own name, whatever this is."""
    group: str | None = None
    """Group of runs that the pages fold into one, such as the seeds of a recipe."""
    tags: tuple[Annotated[str, MinLen(1), MaxLen(64)], ...] = ()
    """Words by which the pages filter runs."""
    notes: str | None = None
    """What the run is for, in Markdown."""


class TrackingConfig(Section):
    """Trackers that show a run; all but MLflow and the console need `pip install -c constraints.txt -e
    '.[trackers]'`."""

    mlflow_uri: str | None = "sqlite:///mlflow.db"
    """MLflow's server or database, without a password; null turns MLflow off. MLFLOW_TRACKING_URI in the environment
    wins."""
    tensorboard: bool = False
    """Write TensorBoard's event files into the run's folder `tensorboard/`; `tensorboard --logdir runs` shows every
    run."""
    wandb: WandbConfig | None = None
    """Show the run in Weights & Biases; `{}` takes the defaults."""
    swanlab: bool = False
    """Write SwanLab's records into the run's folder `swanlab/`: `swanlab watch` shows them, `swanlab sync` sends
    them."""
    console: bool = False
    """Write every step's metrics and generations to the terminal and the run's log."""
    generations_to_log: int = Field(default=4, ge=0)
    """Responses of each step that the trackers show, one for each prompt."""
    val_generations_to_log: int = Field(default=4, ge=0)
    """Responses of each validation that the trackers show, to the first held-out prompts."""
    gallery_items: int = Field(default=24, ge=0)
    """Held-out items that the report and MLflow show with the responses of both models."""

    @override
    def problems(self) -> Iterator[Problem]:
        uri = self.mlflow_uri
        if uri is not None and (uri.startswith("file:") or (":" not in uri and uri != "databricks")):
            yield Problem(
                "mlflow_uri",
                f"{uri!r} is a folder, and MLflow no longer keeps runs in folders",
                "give a database (sqlite:///mlflow.db), a server (http://host:port), or null",
            )

    @property
    def mlflow_address(self) -> str | None:
        """Address of MLflow; None when the config turns it off. The environment comes before the config, since the
        address depends on the machine that runs, and may contain a password, which a config may not."""
        return self.mlflow_uri and (os.environ.get("MLFLOW_TRACKING_URI") or self.mlflow_uri)

    @field_validator("mlflow_uri")
    @classmethod
    def _address_holds_no_password(cls, uri: str | None) -> str | None:
        return uri and without_password(
            uri, "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the whole address as MLFLOW_TRACKING_URI,"
        )


class StorageConfig(Section):
    """A copy of the run on another file system, from which another machine can continue it. Credentials come from the
    environment."""

    address: str = Field(min_length=1)
    """Folder of runs: a path, `s3://bucket/folder`, `gs://bucket/folder`, or any address that fsspec knows.
    SIGHTLINE_STORAGE in the environment wins."""
    verify: bool = True
    """Read each copied file back and compare its hash; false trusts the store and halves the traffic."""

    @field_validator("address")
    @classmethod
    def _address_holds_no_password(cls, address: str) -> str:
        variables = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, ..."
        return without_password(address, f"the store's own variables ({variables})")


class PlanningConfig(Section):
    """What the forecast of step time takes until the run has steps of its own; no number of a run depends on it."""

    mean_prompt_length: float | None = Field(default=None, gt=0.0)
    """Mean tokens of a prompt, images included; null is half of data.max_prompt_length."""
    mean_response_length: float | None = Field(default=None, gt=0.0)
    """Mean tokens of a response; null is half of rollout.max_response_length."""


class PublishedSpeed(Section):
    """The speed from which the hours of a reproduction are estimated."""

    seconds_per_step: float = Field(gt=0.0)
    """Wall time of a training step."""
    num_devices: int = Field(ge=1)
    """Devices that the published run used."""
    device: str
    """Name of these devices."""
    source: str
    """Where it was published, or how it was derived."""


class PublishedConfig(Section):
    """A published result that a run is to reproduce; no number of the run depends on it."""

    protocol: str
    """Protocol of the published accuracy, `name@version`; the run must evaluate in the same way."""
    accuracy: float | None = Field(default=None, ge=0.0, le=1.0)
    """Accuracy after training."""
    accuracy_before: float | None = Field(default=None, ge=0.0, le=1.0)
    """Accuracy of the model that training starts from."""
    at_least: bool = False
    """The publication says "more than": anything above `accuracy` reproduces it too."""
    rounding: float = Field(default=0.005, ge=0.0)
    """Half of the last digit that was published."""
    items: int | None = Field(default=None, ge=1)
    """Held-out items that the accuracy was measured on."""
    train_rows: int = Field(ge=1)
    """Rows that the published run trains on."""
    steps_per_epoch: int = Field(ge=1)
    """Training steps of one epoch."""
    total_steps: int = Field(ge=1)
    """Training steps of the whole run."""
    source: str
    """Where the accuracy was published."""
    conditions: str
    """What else the accuracy depends on."""
    speed: PublishedSpeed | None = None
    """Speed of the published run."""
