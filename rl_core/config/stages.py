"""What happens around training: evaluation, merge, tracking."""

from typing import Literal

from pydantic import Field

from rl_core.config.section import Section


class EvaluationConfig(Section):
    """How base and trained model are compared on the validation rows."""

    n: int = Field(default=1, ge=1)
    """Responses an item in the sampled pass."""
    temperature: float = Field(default=0.6, ge=0.0)
    """Temperature of the sampled pass."""
    top_p: float = Field(default=0.95, gt=0.0, le=1.0)
    """Nucleus mass of the sampled pass."""
    modes: tuple[Literal["greedy", "sampled"], ...] = ("greedy", "sampled")
    """Which passes are run; the first one decides the headline accuracy."""
    accuracy_key: str = "accuracy"
    """Reward component that says whether an answer is right (1) or wrong (0)."""
    limit: int | None = Field(default=None, ge=1)
    """Evaluate only the first items."""


class MergeConfig(Section):
    """The model that leaves the run."""

    checkpoint: Literal["last", "best"] = "last"
    """Which checkpoint is evaluated and merged."""
    probe_tolerance: float = Field(default=1e-4, gt=0.0)
    """Largest difference of a probe log-prob after loading the merged folder (use 0.1 for bfloat16)."""
    push: str | None = None
    """`owner/name` to upload to, private; null uploads nothing."""


class TrackingConfig(Section):
    """Where runs are shown. metrics.jsonl in the run folder is always written."""

    mlflow_uri: str | None = "sqlite:///mlflow.db"
    """MLflow tracking server or database; null turns MLflow off."""
    gallery_items: int = Field(default=24, ge=0)
    """Held-out items shown with image and both answers in the report and in MLflow."""
