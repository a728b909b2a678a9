"""Sizes of published checkpoints, so that a plan knows them before anything is downloaded.

The hub has to be asked for a config.json, and a plan waits for no download. These are the fields of each checkpoint's
config.json that decide its layers; a test compares the parameters that come out with the published totals.
"""

from collections.abc import Mapping
from typing import Any, Final

_QWEN2_5_VL_VISION: Final = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "patch_size": 14}

_QWEN3_VL_VISION: Final = {
    "depth": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "patch_size": 16,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": (5, 11, 17),
}

KNOWN_MODELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Qwen/Qwen2.5-VL-3B-Instruct": {
        "model_type": "qwen2_5_vl",
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "max_position_embeddings": 128_000,
        "tie_word_embeddings": True,
        "vision_config": _QWEN2_5_VL_VISION | {"out_hidden_size": 2048},
    },
    "Qwen/Qwen2.5-VL-7B-Instruct": {
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "max_position_embeddings": 128_000,
        "tie_word_embeddings": False,
        "vision_config": _QWEN2_5_VL_VISION | {"out_hidden_size": 3584},
    },
    "Qwen/Qwen3-VL-4B-Instruct": {
        "model_type": "qwen3_vl",
        "tie_word_embeddings": True,
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151_936,
            "max_position_embeddings": 262_144,
        },
        "vision_config": _QWEN3_VL_VISION | {"out_hidden_size": 2560},
    },
    "Qwen/Qwen2.5-7B-Instruct": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen2.5-1.5B-Instruct": {
        "model_type": "qwen2",
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-VL-32B-Instruct": {
        "model_type": "qwen2_5_vl",
        "hidden_size": 5120,
        "intermediate_size": 27_648,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "vocab_size": 152_064,
        "max_position_embeddings": 128_000,
        "tie_word_embeddings": False,
        "vision_config": _QWEN2_5_VL_VISION | {"intermediate_size": 3456, "out_hidden_size": 5120},
    },
    "Qwen/Qwen2.5-VL-72B-Instruct": {
        "model_type": "qwen2_5_vl",
        "hidden_size": 8192,
        "intermediate_size": 29_568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 152_064,
        "max_position_embeddings": 128_000,
        "tie_word_embeddings": False,
        "vision_config": _QWEN2_5_VL_VISION | {"intermediate_size": 3456, "out_hidden_size": 8192},
    },
}
