"""Takes snapshots of a trainer's state for checkpoints, loads it, and verifies it with the checkpoint's probe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.checkpoints.host_copy import HostCopies
from rl_core.checkpoints.probe import Probe, write_probe
from rl_core.data.images import ImageStore
from rl_core.digests import FileRecord
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.files import atomic_write_json, read_json
from rl_core.training.probing import Prober
from rl_core.training.saved_model import LowerBits, ModuleState, load_optimizer, load_weights
from rl_core.training.trainer import Trainer
from rl_core.types import Group


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSnapshot:
    """The state of a trainer at one moment; each of the ranks has its own shards."""

    # Folder in the checkpoint -> policy or critic, and its counters
    modules: Mapping[str, tuple[ModuleState, Mapping[str, int]]]
    probe: Probe  # The policy's log-probs of some responses
    ranks: Ranks = LONE

    def write(self, folder: Path) -> dict[str, FileRecord]:
        """Write the state into an existing folder: every rank its shards, of which it returns size and hash by path,
        and the first one counters and probe."""
        written: dict[str, FileRecord] = {}
        for name, (state, counters) in self.modules.items():
            place = folder / name
            own = state.write(place, process_group=self.ranks.checkpoint_group)
            written |= {(Path(name) / path).as_posix(): record for path, record in own.items()}
            if self.ranks.is_first:
                atomic_write_json(place / "counters.json", counters)
        if self.ranks.is_first:
            write_probe(folder / "probe", self.probe)
        return written


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """Takes and loads the state of one trainer. A probe holds copies of the images that it needs."""

    trainer: Trainer
    images: ImageStore
    _policy_copies: HostCopies = field(default_factory=HostCopies)
    _critic_copies: HostCopies = field(default_factory=HostCopies)

    def snapshot(self, *, model_only: bool, probe: Sequence[Group], copy: bool) -> TrainerSnapshot:
        """The state at this moment: model (with LoRA, the adapters alone), optimizer unless `model_only`, critic,
        counters, and the log-probs of the groups `probe`. A copy in the host's memory is valid until the next copy,
        anything else until the weights change."""
        trainer, optimizer = self.trainer, self.trainer.optimizer
        policy = ModuleState.of(
            trainer.policy,
            optimizer,
            trained_only=trainer.has_lora,
            model_only=model_only,
            copies=self._policy_copies if copy else None,
        )
        counters = {"policy_version": trainer.policy_version} | optimizer.counters()
        modules: dict[str, tuple[ModuleState, Mapping[str, int]]] = {".": (policy, counters)}
        if trainer.critic is not None:
            critic = trainer.critic.state(model_only=model_only, copies=self._critic_copies if copy else None)
            modules["critic"] = critic
        return TrainerSnapshot(modules=modules, probe=self.prober().probe(probe), ranks=trainer.ranks)

    def free_copies(self) -> None:
        """Give the memory of copied snapshots back."""
        self._policy_copies.free()
        self._critic_copies.free()

    def load(self, folder: Path, *, model_only: bool) -> None:
        """Load everything, to continue training; with `model_only`, the moments start from zero. Raises ProbeMismatch
        if the policy's log-probs differ from the probe by more than a tenth of `merge.probe_tolerance`."""
        lower_bits, counters = self._load_weights(folder)
        moments = None if model_only else folder / "optimizer"
        load_optimizer(
            moments,
            self.trainer.policy,
            self.trainer.optimizer,
            lower_bits=lower_bits,
            counters=counters,
            process_group=self.trainer.ranks.checkpoint_group,
        )
        if self.trainer.critic is not None:
            self.trainer.critic.load(folder / "critic", model_only=model_only)

    def load_policy(self, folder: Path) -> None:
        """Load the policy's weights alone, without an optimizer. Raises ProbeMismatch as `load`."""
        self._load_weights(folder)

    def prober(self) -> Prober:
        """For the policy as it is now."""
        trainer = self.trainer
        return Prober(
            policy=trainer.policy,
            images=self.images,
            pixels=trainer.pixels,
            token_budget=trainer.experience_token_budget,
            config=trainer.config,
            ranks=trainer.ranks,
        )

    def _load_weights(self, folder: Path) -> tuple[LowerBits, Mapping[str, int]]:
        """Load the weights and their version, and verify them with the probe. Returns what the optimizer needs."""
        trainer = self.trainer
        with trainer.ranks.succeed_together():  # a machine that does not see the folder would leave the others waiting
            counters = read_json(folder / "counters.json")
        if trainer.has_lora or trainer.config.model.freeze_vision_tower:
            trainer.load_base()
        lower_bits = load_weights(
            folder / "model",
            trainer.policy,
            trained_only=trainer.has_lora,
            process_group=trainer.ranks.checkpoint_group,
        )
        trainer.weights_changed(policy_version=counters["policy_version"])
        trainer.forget_optimizer()
        self.prober().check(folder / "probe")
        return lower_bits, counters
