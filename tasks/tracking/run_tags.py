"""The tags by which MLflow's runs are found, grouped and compared; every run of a pipeline carries all of them."""

from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.model import ModelConfig, TinyModel
from rl_core.config.run import RunConfig
from rl_core.data.manifest import MANIFEST_FILE, DataManifest
from rl_core.run_directory import RunDirectory
from tasks.cache.code_version import code_version
from tasks.cache.kept_files import files_of_run
from tasks.cache.stages import config_digest, protocol_digest, recipe_digest


def run_tags(config: RunConfig, run: RunDirectory) -> dict[str, str]:
    """The tags that describe a run.

    `config` is the digest in the run's name; `recipe` leaves the seed out, so that runs with one recipe are repetitions
    of one experiment; runs with one `protocol` were measured in the same way; runs with one `dataset` saw the same rows
    (this tag exists from the preparation on).
    """
    tags = {
        "model": model_name(config.model),
        "algorithm": algorithm_name(config.algorithm),
        "config": config_digest(config),
        "recipe": recipe_digest(config),
        "seed": f"{config.seed}",
        "protocol": f"held-out@{protocol_digest(config, files_of_run(config, run, is_frozen=True))}",
        "sightline.experiment": config.experiment,
        "sightline.folder": str(run.root.absolute()),
    }
    if (run.data / MANIFEST_FILE).is_file():
        tags["dataset"] = DataManifest.read(run.data).fingerprint
    return tags


def code_tags() -> dict[str, str]:
    """The version of the code that this process runs; the commit has the name that MLflow's pages use."""
    version = code_version()
    commit = {"mlflow.source.git.commit": version.commit} if version.commit else {}
    return {"code": f"{version}", "mlflow.source.name": "sightline", **commit}


def model_name(model: ModelConfig) -> str:
    """The last part of a folder or hub name; for a tiny model, its family."""
    source = model.source
    if isinstance(source, TinyModel):
        return f"tiny-{source.family}"
    return source.path.rstrip("/").rpartition("/")[2]


def algorithm_name(algorithm: AlgorithmConfig) -> str:
    """The advantage estimator, with what differs from the default: `grpo`, `grpo-gspo-filtered`."""
    parts: list[str] = [algorithm.advantage.label]
    if algorithm.loss.type != "ppo":
        parts.append(algorithm.loss.label)
    if algorithm.online_filtering is not None:
        parts.append("filtered")
    if algorithm.kl is not None:
        parts.append("kl")
    return "-".join(parts)
