"""Checks that a merged model folder, loaded in transformers or vLLM, gives the log-probs that the trainer stored.

    python merged_check.py FOLDER PROBE_FOLDER TOLERANCE MEAN_TOLERANCE --engine transformers|vllm [--result FILE]

This script imports nothing of Sightline, to show that the folder works without it. PROBE_FOLDER holds probe.json and
its images (rl_core/checkpoints/probe.py describes them). It prints where the log-probs differ. Exits with 0 if every
difference is within TOLERANCE and their mean within MEAN_TOLERANCE (rounding moves single rare tokens far, a wrong
weight moves many tokens a little), with 1 if not; any other status means that the folder could not be loaded.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

Item = dict[str, Any]
SHOWN_DIFFERENCES = 10

_SHARE_OF_WEIGHTS = 0.75  # of a memory; the rest is for what the layers compute, and for a layer that is brought
_SHARE_OF_CACHE = 0.15  # of a GPU's memory, for what vLLM computes and its cache
_OF_TEXT = (
    "input_ids",
    "attention_mask",
    "mm_token_type_ids",
    "token_type_ids",
)  # what a processor makes of the text beside images
_SEQUENCES_AT_ONCE = 8
_BLOCK = {"cpu": 128, "cuda": 16}  # smallest block of vLLM's KV cache, tokens


def room() -> dict[int | str, int]:
    """Bytes that the weights may take on each GPU, and then in the machine's memory; the rest is read from the
    folder."""
    import psutil
    import torch

    free: dict[int | str, int] = {gpu: torch.cuda.mem_get_info(gpu)[0] for gpu in range(torch.cuda.device_count())}
    free["cpu"] = psutil.virtual_memory().available
    return {place: int(_SHARE_OF_WEIGHTS * memory) for place, memory in free.items()}


def whole_attention(config: Any) -> str | None:
    """The attention of transformers that leaves nothing out which a config asks for: all but its eager one leave out a
    soft cap of the scores, without a word. None where its own choice will do."""
    return "eager" if getattr(config.get_text_config(), "attn_logit_softcapping", None) else None


def transformers_log_probs(folder: Path, items: list[Item], dtype: str) -> list[list[float]]:
    """[item][token] log-probs, with the model class that transformers chooses for the folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    has_vision = "vision_config" in config.sub_configs
    factory = AutoModelForImageTextToText if has_vision else AutoModelForCausalLM
    # The first device computes what is not on another GPU: each layer is brought there when it is its turn.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = factory.from_pretrained(
        folder,
        dtype=getattr(torch, dtype),
        trust_remote_code=False,
        attn_implementation=whole_attention(config),
        device_map="sequential",
        max_memory=room(),
    ).eval()
    processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False) if has_vision else None

    def log_probs(item: Item) -> list[float]:
        inputs, length = sequence_inputs(model, processor, item, device), len(whole_response(item))
        with torch.no_grad():
            logits = model(**inputs, use_cache=False, logits_to_keep=length + 1).logits[0, -length - 1 : -1].float()
        targets = inputs["input_ids"][0, -length:, None]
        every = torch.log_softmax(logits, dim=-1).gather(1, targets)[:, 0].tolist()
        return [every[place] for place in sampled_places(item)]

    return [log_probs(item) for item in items]


def whole_response(item: Item, kind: str = "token_ids") -> list[int]:
    """The response with what an environment has put between the model's turns: as "token_ids", or with one placeholder
    for each image as "engine_token_ids"."""
    tokens: list[int] = []
    done = 0
    for put in item["insertions"]:
        tokens += item["response_ids"][done : put["after"]] + put[kind]
        done = put["after"]
    tokens += item["response_ids"][done:]
    return tokens


def sampled_places(item: Item) -> list[int]:
    """The places of the model's own tokens in the whole response."""
    before = [(put["after"], len(put["token_ids"])) for put in item["insertions"]]
    return [
        place + sum(length for after, length in before if after <= place) for place in range(len(item["response_ids"]))
    ]


def sequence_inputs(model: Any, processor: Any, item: Item, device: str) -> dict[str, Any]:
    """What the model's forward pass takes for the prompt and the whole response of an item, as one sequence."""
    from inspect import signature

    import torch

    takes = signature(model.forward).parameters
    tokens = torch.tensor([item["token_ids"] + whole_response(item)], device=device)
    inputs = {"input_ids": tokens}
    if item["images"]:
        places = processor.image_token * len(item["images"])
        made = processor(text=[places], images=item["images"], return_tensors="pt").to(device)
        of_image = (tokens == model.config.image_token_id).int()
        of_tokens = dict.fromkeys(("mm_token_type_ids", "token_type_ids"), of_image)
        given = {name: made[name] for name in made if name not in _OF_TEXT} | of_tokens
        inputs |= {name: value for name, value in given.items() if name in takes}
    if item["videos"]:
        frames, times = zip(*item["videos"], strict=True)
        pixels = processor.video_processor(
            videos=list(frames), video_metadata=list(times), do_sample_frames=False, return_tensors="pt"
        ).to(device)
        inputs |= {name: pixels[name] for name in pixels if name in takes}
        # The positions of transformers would let the text after a video begin before the video's last step.
        prompt = torch.tensor(item["position_ids"], device=device)
        response = prompt.max() + 1 + torch.arange(len(whole_response(item)), device=device)
        inputs["position_ids"] = torch.cat([prompt, response.expand(3, -1)], dim=1)[:, None]
    return inputs


def vllm_log_probs(folder: Path, items: list[Item], dtype: str) -> list[list[float]]:
    """[item][token] log-probs of vLLM, which gets the responses as part of the prompt. No token ban applies to them."""
    import torch
    from vllm import LLM, SamplingParams

    device = "cuda" if torch.cuda.is_available() else "cpu"
    responses = [whole_response(item) for item in items]
    longest = max(len(item["token_ids"]) + len(response) for item, response in zip(items, responses, strict=True))
    options: dict[str, Any] = {"gpu_memory_utilization": 0.5}
    if device == "cuda":
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        options = spread(weights, torch.cuda.mem_get_info()[1], torch.cuda.device_count())
    most = {kind: max(len(item[f"{kind}s"]) for item in items) for kind in ("image", "video")}
    if any(most.values()):
        options |= {"limit_mm_per_prompt": most, "skip_mm_profiling": True}
    if most["video"]:
        # Otherwise videos are normalised with the mean and deviation of the image processor.
        options["mm_device_do_normalize"] = False
    llm = LLM(
        model=str(folder),
        dtype=dtype,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=longest + 1,
        max_num_seqs=_SEQUENCES_AT_ONCE,
        # Room for these sequences alone, because on a CPU vLLM fills the whole cache with zeros first.
        num_gpu_blocks_override=_SEQUENCES_AT_ONCE * (longest // _BLOCK[device] + 2),
        **options,
    )
    prompts = [
        {"prompt_token_ids": item["engine_token_ids"] + whole_response(item, "engine_token_ids")} | vllm_media(item)
        for item in items
    ]
    asked = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    with torch.compiler.set_stance("force_eager"):  # enforce_eager applies to the model, but not to the sampler
        outputs = llm.generate(prompts, asked, use_tqdm=False)
    return [
        [output.prompt_logprobs[-len(response) :][place][response[place]].logprob for place in sampled_places(item)]
        for output, item, response in zip(outputs, items, responses, strict=True)
    ]


def spread(weights: int, memory: int, gpus: int) -> dict[str, Any]:
    """vLLM's options for weights of so many bytes, on GPUs that have so much memory each: one GPU with half of its
    memory if that is enough, else two, four or eight of them, with more of it. What has no room on all of them lies in
    the machine's memory."""
    count = 1
    while weights / count > _SHARE_OF_WEIGHTS * memory and 2 * count <= gpus:
        count *= 2
    part = min(weights / count, _SHARE_OF_WEIGHTS * memory)
    return {
        "tensor_parallel_size": count,
        "cpu_offload_gb": (weights / count - part) / 2**30,
        "gpu_memory_utilization": max(0.5, part / memory + _SHARE_OF_CACHE),
    }


def vllm_media(item: Item) -> dict[str, Any]:
    """The images and videos of an item's prompt, with every frame."""
    data = {"image": item["images"]} if item["images"] else {}
    if not item["videos"]:
        return {"multi_modal_data": data} if data else {}
    data["video"] = [(frames, {**times, "do_sample_frames": False}) for frames, times in item["videos"]]
    return {"multi_modal_data": data, "mm_processor_kwargs": {"do_sample_frames": False}}


ENGINES = {"transformers": transformers_log_probs, "vllm": vllm_log_probs}


def read_items(probe_folder: Path) -> tuple[list[Item], str]:
    """The probe's items, with their images and videos opened, and the number format of the trainer's weights."""
    import numpy as np
    from PIL import Image

    def opened(names: list[str]) -> list[Any]:
        return [Image.open(probe_folder / name).convert("RGB") for name in names]

    def described(video: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        frames = np.stack([np.asarray(frame) for frame in opened(video["frames"])])
        count, fps = len(frames), video["fps"]
        times = {"fps": fps, "frames_indices": list(range(count)), "total_num_frames": count, "duration": count / fps}
        return frames, times | {"video_backend": "opencv"}

    probe = json.loads((probe_folder / "probe.json").read_text())
    for item in probe["items"]:
        frames = [name for video in item.get("videos", ()) for name in video["frames"]]
        later = [name for put in item["insertions"] for name in put["images"]]
        if elsewhere := [name for name in (*item["images"], *frames, *later) if Path(name).name != name]:
            raise ValueError(f"{probe_folder} names images that are not in it: {elsewhere}")
        item["images"] = opened([*item["images"], *later])
        item["videos"] = [described(video) for video in item.get("videos", ())]
    return probe["items"], probe["dtype"]


def compare(items: list[Item], found: list[list[float]], tolerance: float, mean_tolerance: float) -> dict[str, Any]:
    """How the log-probs differ, whether that is within the tolerances, and the worst tokens, largest difference
    first."""
    places = [
        {"item": item["name"], "position": position, "token": token, "stored": stored, "found": value}
        for item, values in zip(items, found, strict=True)
        for position, (token, stored, value) in enumerate(
            zip(item["response_ids"], item["log_probs"], values, strict=True)
        )
    ]
    for place in places:
        gap = abs(place["stored"] - place["found"])
        place["difference"] = gap if gap == gap else float("inf")  # NaN equals nothing
    places.sort(key=lambda place: -place["difference"])
    beyond = [place for place in places if place["difference"] > tolerance]
    mean = sum(place["difference"] for place in places) / len(places)
    return {
        "num_tokens": len(places),
        "largest_difference": places[0]["difference"],
        "mean_difference": mean,
        "tolerance": tolerance,
        "mean_tolerance": mean_tolerance,
        "is_equal": not beyond and mean <= mean_tolerance,
        "num_beyond": len(beyond),
        "beyond": beyond[:SHOWN_DIFFERENCES],
    }


def report(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"{result['engine']}: {result['num_tokens']} response tokens, largest difference "
        f"{result['largest_difference']:.3g}, {result['num_beyond']} beyond {result['tolerance']:g}, mean "
        f"{result['mean_difference']:.3g} (at most {result['mean_tolerance']:g})"
    ]
    for place in result["beyond"]:
        lines.append(
            f"  item {place['item']}, response token {place['position']} (id {place['token']}): "
            f"stored {place['stored']:.6f}, found {place['found']:.6f}, difference {place['difference']:.3g}"
        )
    return "\n".join(lines)


def set_environment() -> None:
    """Set what vLLM and transformers read when they are imported. Only a process of this script does so: a process that
    imports it may run another engine.

    No network and no telemetry, unless the environment says otherwise. With a given cache size, vLLM on a CPU does not
    require half of the machine's memory to be free.
    """
    for name, value in {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the end of this process is the end of the engine
    os.environ["TRITON_F32_DEFAULT"] = "ieee"  # no TF32 in vLLM's attention to float32 keys, as in training


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("probe_folder", type=Path)
    parser.add_argument("tolerance", type=float)
    parser.add_argument("mean_tolerance", type=float)
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--result", type=Path, help="also write the result here, as JSON")
    arguments = parser.parse_args()
    items, dtype = read_items(arguments.probe_folder)
    found = ENGINES[arguments.engine](arguments.folder, items, dtype)
    result = {"engine": arguments.engine} | compare(items, found, arguments.tolerance, arguments.mean_tolerance)
    if arguments.result:
        arguments.result.write_text(json.dumps(result))
    sys.stdout.write(report(result) + "\n")
    return 0 if result["is_equal"] else 1


if __name__ == "__main__":
    set_environment()
    status = main()
    # A regular shutdown of the engine and the interpreter takes seconds, and everything is written already.
    sys.stdout.flush()
    os._exit(status)
