"""The same mixed precision under FSDP2: float32 shards with a MixedPrecisionPolicy train the numbers that one device
keeps as bfloat16 weights and lower bits, and both read each other's checkpoints."""

import subprocess
import sys
from pathlib import Path

import torch

from rl_core.checkpoints.sharded import load_sharded
from rl_core.training.saved_model import ModuleState, empty_master_weights, master_weights
from tests.rl_core.models.builders import relative_difference, write_small_model
from tests.rl_core.workers.mixed_precision import START, build, train

HALF_WAY = -(1 << 15)
"""The lower bits of a master weight half-way between two bfloat16 numbers."""

WORKER = """
import sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from rl_core.checkpoints.sharded import load_model_state, load_optimizer_state, model_state, save_sharded
from tests.rl_core.workers.mixed_precision import build, train

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
bench, optimizer_of = build(folder / "model")
policy = bench.policy
for parameter in policy.parameters():
    parameter.data = parameter.data.float()
precision = MixedPrecisionPolicy(
    param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
)
mesh = torch.distributed.init_device_mesh("cpu", (2,))
for layer in (*policy.model.model.language_model.layers, *policy.model.model.visual.blocks):
    fully_shard(layer, mesh=mesh, mp_policy=precision)
fully_shard(policy, mesh=mesh, mp_policy=precision)
optimizer = optimizer_of(policy)
group = dist.group.WORLD
load_model_state(folder / "start" / "model", policy, process_group=group)
load_optimizer_state(folder / "start" / "optimizer", policy, optimizer.adamw, process_group=group)
train(bench, optimizer, seeds=(11,))
assert {p.dtype for p in policy.parameters()} == {torch.float32}
save_sharded(folder / "end", model_state(policy), process_group=group)
dist.barrier()  # neither leaves while the other still reads from it
dist.destroy_process_group()
"""


def test_fsdp_trains_the_same_numbers_from_the_same_checkpoint(tmp_path: Path) -> None:
    write_small_model(tmp_path / "model", "qwen2_5_vl")
    bench, optimizer_of = build(tmp_path / "model")
    optimizer = optimizer_of(bench.policy)
    train(bench, optimizer, seeds=START)
    # Half-way between two bfloat16 numbers, split weights are rounded up and casts to the even one. Which weights of
    # some hundred thousand come to lie there depends on the processor, so these are moved a little. For the same reason
    # only one step follows.
    for bits in optimizer.adamw.lower_bits.values():
        bits[bits == HALF_WAY] += 1
    start = ModuleState.of(bench.policy, optimizer, trained_only=False, model_only=False, copies=None)
    start.write(tmp_path / "start")
    before = master_weights(bench.policy, optimizer.adamw)
    before = {name: number.clone() for name, number in before.items()}

    commands = [[sys.executable, "-c", WORKER, str(rank), str(tmp_path)] for rank in range(2)]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    train(bench, optimizer, seeds=(11,))
    for worker in workers:
        _, errors = worker.communicate(timeout=300)
        assert worker.returncode == 0, errors

    found = empty_master_weights(bench.policy)
    load_sharded(tmp_path / "end", found)
    expected = master_weights(bench.policy, optimizer.adamw)
    moved = torch.cat([(expected[name] - before[name]).flatten() for name in expected])
    theirs = torch.cat([(found[name] - before[name]).flatten() for name in expected])
    assert relative_difference(theirs, moved) < 1e-3
    assert moved.abs().max() < 1e-4  # far below what bfloat16 weights of this size can show
