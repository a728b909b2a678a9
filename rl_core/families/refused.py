"""Families that cannot be trained, with the reason."""

from typing import Final

_BRANCH: Final = "its layers carry a state from token to token, from which the responses to a prompt do not branch yet"
_OWN_CODE: Final = "its code comes with the checkpoint, and no code of a checkpoint is run"

REASONS: Final = {
    "internvl_chat": "its folder is in the older layout, whose code comes with the checkpoint: take the checkpoint of "
    "the same model whose name ends in -HF",
    "mllama": "vLLM serves Llama 3.2 Vision no more since its version 0.10.2",
    "phi4_multimodal": "vLLM serves this layout no more since its version 0.12",
    "phi4mm": _OWN_CODE,
    "deepseek_vl_v2": _OWN_CODE,
    "kimi_vl": _OWN_CODE,
    "qwen4_exp": "its embeddings of several tokens look across the place where a response branches from its prompt",
    "minicpmv4_7": "the tokens of its images have positions on a canvas, which are not computed yet; MiniCPM-V 4.6 has "
    "ordinary ones",
    "nemotron_h": _BRANCH,
    "lfm2": _BRANCH,
    "lfm2_vl": _BRANCH,
    "gpt_oss": "vLLM's class of it copies experts and sinks past the loaders by which weights are replaced, so that it "
    "samples with those of its start, on a GPU too",
}
"""[`model_type`] -> why."""
