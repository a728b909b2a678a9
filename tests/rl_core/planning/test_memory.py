"""The memory forecast adds up, and says what to change when it does not fit."""

from dataclasses import replace

import pytest

from rl_core.config.run import RunConfig
from rl_core.planning.engine_memory import engine_part
from rl_core.planning.memory import KEPT_ON_CPU, memory_forecast
from rl_core.planning.memory_rows import ALWAYS, BACKWARD, GIB, KEPT_BYTES, UPDATE
from rl_core.planning.memory_rules import memory_problems
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.update_memory import Pass, logit_bytes, update_pass, vision_kept_bytes
from tests.rl_core.planning.published import sizes_of

LINEAR_LAYERS = {
    "self_attn.q_proj": 3584 + 3584,
    "self_attn.k_proj": 3584 + 512,
    "self_attn.v_proj": 3584 + 512,
    "self_attn.o_proj": 3584 + 3584,
    "mlp.gate_proj": 3584 + 18944,
    "mlp.up_proj": 3584 + 18944,
    "mlp.down_proj": 18944 + 3584,
}
SEVEN_BILLION = ModelSizes(
    family="qwen2_5_vl",
    parameters=8_292_166_656,
    num_layers=28,
    layer_parameters=233_057_792,
    hidden_size=3584,
    intermediate_size=18944,
    kinds_of_heads=((128, 4),),
    query_size=3584,
    key_value_size=512,
    vocab_size=152064,
    max_positions=128000,
    linear_layers={
        f"model.language_model.layers.{layer}.{name}": ends
        for layer in range(28)
        for name, ends in LINEAR_LAYERS.items()
    },
)

TINY = replace(
    SEVEN_BILLION,
    parameters=2_000_000,
    num_layers=2,
    layer_parameters=37_000,
    hidden_size=64,
    intermediate_size=128,
    query_size=64,
    key_value_size=32,
    vocab_size=400,
    linear_layers={},
)


def cpu_pass(config: RunConfig, sizes: ModelSizes = SEVEN_BILLION, *, response: int | None = None) -> Pass:
    return update_pass(config, sizes, config.actor, response=response, on_gpu=False)


def rows_of(config: RunConfig, **machine: float) -> dict[str, float]:
    return {row.name: row.gib for row in memory_forecast(config, SEVEN_BILLION, **machine).rows}


@pytest.mark.parametrize(
    ("overrides", "weights", "gradients", "optimizer"),
    [
        (["model.dtype=float32"], 4, 4, 8),
        (["model.dtype=bfloat16"], 2, 4, 10),
        (["model.dtype=bfloat16", "actor.optim.strategy=adamw_bf16"], 2, 2, 8),
    ],
)
def test_weights_gradients_and_optimizer_follow_from_the_parameters(
    configure, overrides, weights, gradients, optimizer
):
    """Bytes a parameter."""
    rows = rows_of(configure(*overrides))
    parameters = 8_292_166_656 / GIB
    assert rows["weights"] == rows["engine weights"] == pytest.approx(weights * parameters)
    assert rows["gradients"] == pytest.approx(gradients * parameters)
    assert rows["optimizer state"] == pytest.approx(optimizer * parameters)


def test_a_cold_start_trains_whole_weights_whatever_rl_trains(configure):
    overrides = ["model.dtype=bfloat16", "model.lora={rank: 8}"]
    alone = memory_forecast(configure(*overrides), SEVEN_BILLION).peak_gib
    warmed = memory_forecast(configure(*overrides, "cold_start={steps: 1}"), SEVEN_BILLION).peak_gib
    assert alone < 45.0
    assert warmed > 16 * 8_292_166_656 / GIB


def with_tower(sizes: ModelSizes) -> ModelSizes:
    """Two blocks of Qwen2.5-VL's vision tower, and a layer that is in none."""
    block = {
        "attn.qkv": 1280 + 3840,
        "attn.proj": 2560,
        "mlp.gate_proj": 4700,
        "mlp.up_proj": 4700,
        "mlp.down_proj": 4700,
    }
    blocks = {f"model.visual.blocks.{n}.{name}": ends for n in range(2) for name, ends in block.items()}
    merger = {"model.visual.merger.mlp.0": 5120 + 5120}
    return replace(
        sizes,
        vision_parameters=676_550_144,
        vision_blocks=2,
        vision_width=1280,
        vision_intermediate_size=3420,
        gated_vision=True,
        patch_size=14,
        patch_numbers=1176,
        linear_layers={**sizes.linear_layers, **blocks, **merger},
    )


def test_images_cost_what_the_blocks_of_the_tower_keep_of_every_patch(configure):
    """64 prompt tokens are 256 patches, of 1176 numbers. With responses of 16 tokens a budget of 4 x 80 tokens has one
    whole group of 64 + 8 x 16, and with responses of one token four."""
    sizes, block = with_tower(SEVEN_BILLION), 14 * 1280 + 4 * 3420
    patch = 2 * (2 * block + 6 * 1280) + 6 * 1176

    def kept(*overrides, response):
        config = configure("model.dtype=bfloat16", *overrides)
        return vision_kept_bytes(config, sizes, cpu_pass(config, sizes, response=response))

    assert kept(response=16) == 256 * patch
    assert kept(response=1) == kept(response=None) == 4 * 256 * patch
    assert kept("actor.micro_batch_size_per_device_for_update=5", response=16) == 2 * 256 * patch
    assert kept("model.lora={rank: 8}", response=None) == 0
    assert kept("model.gradient_checkpointing=true", response=16) == 256 * (2 * (2 + 6) * 1280 + 6 * 1176)
    config = configure("model.dtype=bfloat16")
    assert vision_kept_bytes(config, SEVEN_BILLION, cpu_pass(config)) == 0


def test_an_update_takes_the_most_of_its_moments_and_not_their_sum(configure):
    """What the layers keep is freed before the vision tower's turn, and logits before that of the layers."""
    forecast = memory_forecast(configure("model.dtype=bfloat16"), with_tower(SEVEN_BILLION), gpu_gib=141.0)
    at = {moment: {row.name for row in forecast.rows if moment in row.moments} for moment in BACKWARD}
    head, layer, tower, end = (at[moment] for moment in BACKWARD)
    logits, language = "logits of a chunk and gradient of the head", "activations of the language model"
    assert logits in head and logits not in layer | tower | end
    assert language in head & layer and language not in tower | end
    assert "activations of the vision tower" in head & layer & tower and "activations of the vision tower" not in end
    assert all("gradients" in names for names in at.values())
    assert forecast.phase_gib("update") == max(forecast.moment_gib(moment) for moment in UPDATE)
    assert {row.name for row in forecast.rows_of("update")} <= at[forecast.largest_moment("update")]


def test_logits_grow_with_the_chunk_and_not_with_the_batch(configure):
    def logits(*overrides):
        config = configure(*overrides)
        return logit_bytes(config, SEVEN_BILLION, cpu_pass(config))

    small = logits("model.log_prob_chunk_tokens=256")
    assert small == 3 * 4 * 256 * 152064
    assert logits("model.log_prob_chunk_tokens=256", "actor.micro_batch_size_per_device_for_update=64") == small
    assert logits() == 3 * 4 * 320 * 152064, "a chunk is no larger than the micro-batch"
    assert logits("algorithm.entropy_coef=0.01") == 5 * 4 * 320 * 152064, "exponentials and their gradient"


def test_phases_take_turns_and_malloc_keeps_a_share_of_the_update(configure):
    waits = "trainer.async_save=false"
    shared = ("rollout.gpu_memory_utilization=0.5", "rollout.enforce_eager=true", waits)
    config = configure("model.dtype=bfloat16", *shared)
    on_cpu, on_gpu = memory_forecast(config, SEVEN_BILLION), memory_forecast(config, SEVEN_BILLION, gpu_gib=141.0)
    for forecast, engine in ((on_cpu, True), (on_gpu, False)):
        assert forecast.peak_gib == max(forecast.phase_gib("generate"), forecast.phase_gib("update"))
        weights = next(row for row in forecast.rows if row.name == "engine weights")
        assert (weights.moments == ALWAYS) == engine
    at_rest = sum(row.gib for row in on_cpu.rows_of("always"))
    masters = 4 * 8_292_166_656 / GIB
    kept = KEPT_BYTES / GIB  # of an update of many GiB
    assert on_cpu.phase_gib("save") == pytest.approx(at_rest + max(masters, kept)), "weights become float32 ones"
    single = memory_forecast(configure("model.dtype=float32", waits), SEVEN_BILLION)
    at_rest = sum(row.gib for row in single.rows_of("always"))
    assert single.phase_gib("save") == pytest.approx(at_rest + kept)
    tiny = memory_forecast(configure("model.dtype=float32", "actor.global_batch_size=1", waits), TINY)
    at_rest = sum(row.gib for row in tiny.rows_of("always"))
    assert tiny.phase_gib("save") == pytest.approx(at_rest + KEPT_ON_CPU * (tiny.phase_gib("update") - at_rest))
    engine = sum(row.gib for row in on_gpu.rows_of("generate"))
    assert engine == pytest.approx(0.5 * 140.5, abs=0.01), "the engine takes its share of what torch sees of the GPU"
    assert on_gpu.phase_gib("save") == sum(row.gib for row in on_gpu.rows_of("always"))


@pytest.mark.parametrize("offload", ["none", "optimizer", "all"])
def test_offloaded_tensors_are_in_the_machines_memory_and_not_in_the_gpus(configure, offload):
    gae = ("algorithm.advantage.type=gae", "critic={}", "algorithm.kl={coef: 0.01}", "model.dtype=bfloat16")
    forecast = memory_forecast(configure(*gae, f"trainer.offload={offload}"), SEVEN_BILLION, gpu_gib=141.0)
    always = {row.name for row in forecast.rows_of("always")}
    host = {row.name for row in forecast.host_rows}
    states = {"optimizer state", "critic's optimizer state"}
    assert (states <= always) == (offload == "none")
    assert ("optimizer state" in host) == (offload != "none")
    models = {"reference weights", "critic's weights"}
    assert (models <= always) == (offload != "all")
    assert (models <= host) == (offload == "all")
    if offload == "all":
        weights = next(row for row in forecast.rows if row.name == "reference weights")
        assert weights.moments == ("pass of the reference",), "it takes turns"
    numbers = 8_292_166_656
    rest = {row.name: row.num_bytes for row in forecast.host_rows}
    assert rest["copy of a checkpoint"] == 2 * (4 + 8) * numbers
    assert rest.get("optimizer state", 0) == (0 if offload == "none" else 2 * 10 * numbers)


def test_a_machine_with_too_little_memory_beside_its_gpu_is_warned_of(configure):
    config = configure("model.dtype=bfloat16", "trainer.offload=all", "rollout.gpu_memory_utilization=0.7")
    memory = {"available_gib": 141.0, "on_gpu": True}
    assert memory_problems(config, SEVEN_BILLION, **memory, host_gib=512.0) == []
    (problem,) = memory_problems(config, SEVEN_BILLION, **memory, host_gib=64.0)
    assert not problem.fatal and problem.where == "memory of this machine"
    assert "the largest part is copy of a checkpoint" in problem.what


def test_workers_share_what_they_train_and_gather_layers(configure):
    alone = rows_of(configure("model.dtype=bfloat16"), gpu_gib=80.0)
    spread = rows_of(configure("model.dtype=bfloat16", "cluster.devices=8"), gpu_gib=80.0)
    state = ("weights", "optimizer state", "gradients")
    assert 8 * sum(spread[name] for name in state) == pytest.approx(sum(alone[name] for name in state), rel=1e-6)
    assert spread["weights"] == pytest.approx(4 * SEVEN_BILLION.parameters / 8 / GIB, rel=1e-6)  # float32 masters
    assert spread["engine weights"] == alone["engine weights"]  # each worker has a whole generator
    gathered = {"gathered embeddings", "gathered layers", "gradient of a gathered layer"}
    assert not gathered & alone.keys() and min(spread[name] for name in gathered) > 0.5
    assert spread["whole weight in the sync"] == pytest.approx(9 / 8 * 2 * 152064 * 3584 / GIB)
    copies = rows_of(configure("model.dtype=bfloat16", "cluster.devices=8", "cluster.sharding=none"), gpu_gib=80.0)
    assert [copies[name] for name in state] == [alone[name] for name in state]
    assert not gathered & copies.keys()
    hybrid = configure("cluster.devices=4", "cluster.nodes=2", "cluster.sharding=hybrid", "model.dtype=bfloat16")
    assert rows_of(hybrid, gpu_gib=80.0)["weights"] == pytest.approx(2 * spread["weights"], rel=1e-6)


def test_a_gathered_layer_has_all_of_its_experts(configure):
    source = "model.source={type: pretrained, path: Qwen/Qwen3-30B-A3B}"
    config = configure(source, "model.dtype=bfloat16", "cluster.devices=8")
    rows = {row.name: row.gib for row in memory_forecast(config, sizes_of(config), gpu_gib=80.0).rows}
    layer = 623_120_640  # of its 30.5 billion in 48 layers
    assert rows["gathered layers"] == pytest.approx(2 * 2 * layer / GIB)
    assert rows["engine layer that the sync fills"] == pytest.approx(2 * layer / GIB)


def test_workers_that_hold_a_generator_together_share_its_weights_and_its_cache(configure):
    """A part of the weights leaves room for more of the cache, in which a token has fewer heads."""
    settings = ("model.dtype=bfloat16", "cluster.devices=8", "rollout.gpu_memory_utilization=0.5")
    whole, part = (configure(*settings, f"cluster.tensor_parallel_size={size}") for size in (1, 4))
    of_whole, of_part = (rows_of(config, gpu_gib=80.0) for config in (whole, part))
    assert of_whole["engine weights"] == pytest.approx(4 * of_part["engine weights"], rel=1e-6)
    assert of_part["engine KV cache"] > of_whole["engine KV cache"] + 0.7 * of_whole["engine weights"]
    sequences = [memory_forecast(config, SEVEN_BILLION, gpu_gib=80.0).cached_sequences for config in (whole, part)]
    assert sequences[1] > 4 * sequences[0]
    assert engine_part(part.cluster, SEVEN_BILLION).key_value_size == SEVEN_BILLION.key_value_size // 4
    more = configure(*settings, "cluster.tensor_parallel_size=8")
    assert engine_part(more.cluster, SEVEN_BILLION).key_value_size == SEVEN_BILLION.head_size


def test_workers_of_a_machine_share_its_memory(configure):
    config = configure("cluster.devices=4")
    on_cpu, on_gpu = (memory_forecast(config, SEVEN_BILLION, gpu_gib=gib) for gib in (None, 80.0))
    assert on_cpu.machine_gib == 4 * on_cpu.peak_gib
    assert on_gpu.machine_gib == 4 * on_gpu.host_gib
    (problem,) = memory_problems(config, SEVEN_BILLION, available_gib=1.5 * on_cpu.peak_gib, on_gpu=False)
    assert "by 4 workers" in str(problem)


def test_a_save_in_the_background_keeps_a_copy_of_the_checkpoint(configure):
    """Master weights and two moments, in float32: on a CPU besides everything else, on a GPU in the machine's
    memory."""
    background, waiting = configure(), configure("trainer.async_save=false")
    copy = 12 * 8_292_166_656 / GIB
    rows = rows_of(background)
    assert rows["copy of a checkpoint"] == pytest.approx(copy)
    assert "copy of a checkpoint" not in rows_of(waiting)
    more = memory_forecast(background, SEVEN_BILLION).peak_gib - memory_forecast(waiting, SEVEN_BILLION).peak_gib
    assert more == pytest.approx(copy)
    for config, moments in ((background, ALWAYS), (waiting, ("save",))):
        host = memory_forecast(config, SEVEN_BILLION, gpu_gib=141.0).host_rows
        assert [(row.gib, row.moments) for row in host if row.name == "copy of a checkpoint"] == [
            (pytest.approx(copy), moments)
        ]


def test_workers_that_only_train_hold_no_engine_and_the_others_no_trainer(configure):
    """On a GPU and on a CPU, each kind has its own libraries or CUDA context."""
    split = configure("model.dtype=bfloat16", "cluster={devices: 4, placement: split, sharding: none}")
    together = configure("model.dtype=bfloat16", "cluster={devices: 4, sharding: none}")
    for gib in (None, 141.0):
        apart, both = (memory_forecast(config, SEVEN_BILLION, gpu_gib=gib) for config in (split, together))
        training = {row.name for row in (*apart.rows_of("always"), *apart.rows_of("update"), *apart.rows_of("save"))}
        generating = {row.name for row in apart.rows_of("generate")}
        shared = {"libraries"} if gib is None else {"CUDA context and workspaces", "reserved by the driver"}
        assert training & generating == shared
        assert all(name.startswith("engine") for name in generating - shared)
        assert not any(name.startswith("engine") for name in training)
        assert apart.phase_gib("generate") < both.phase_gib("generate")
        assert apart.phase_gib("update") < both.phase_gib("update")
        assert apart.phase_gib("generate") == pytest.approx(sum(row.gib for row in apart.rows_of("generate")))


def test_the_workers_of_a_machine_that_are_split_take_what_each_kind_takes(configure):
    config = configure("cluster={devices: 4, placement: split, generating_devices: 3, sharding: none}")
    forecast = memory_forecast(config, SEVEN_BILLION)
    training = max(forecast.phase_gib("update"), forecast.phase_gib("save"))
    assert forecast.machine_gib == pytest.approx(3 * forecast.phase_gib("generate") + training)


def test_a_cache_too_small_for_one_sequence_is_refused_with_the_size_it_needs(configure):
    config = configure("data.max_prompt_length=30000", "rollout.cpu_kv_cache_gib=1")
    (problem,) = memory_problems(config, SEVEN_BILLION, available_gib=1e4, on_gpu=False)
    assert problem.where == "rollout.cpu_kv_cache_gib" and problem.fix == "set it to 4 or more"
