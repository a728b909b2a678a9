"""The quickstart's model with the words of a call: `python -m benchmarks.calling_model FOLDER [--runs-dir DIR]`.

The tokenizer of the quickstart was made of its questions and answers, and would write a call of the tool `zoom` letter
by letter, in 91 tokens. Here the tokenizer gets the words between the numbers of such a call, as published models have
tokens for calls; their ids are some that the model's embedding has and the tokenizer had not named. No weight changes,
so that the words mean nothing until a cold start has taught them.
"""

import argparse
import json
import shutil
from pathlib import Path

from transformers import AddedToken, AutoTokenizer

from flows.request import newest_run
from rl_core.files import committed_folder

FOLDER = Path("models/quickstart-that-calls")
QUICKSTART = Path(__file__).parents[1] / "configs" / "quickstart.yaml"
WORDS = ('<tool_call>{"name": "zoom", "arguments": {"x1": ', ', "y1": ', ', "x2": ', ', "y2": ', "}}</tool_call>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--runs-dir", default="runs", help="folder with the run of the quickstart")
    arguments = parser.parse_args()
    if arguments.folder.exists():
        print(f"{arguments.folder} exists already, and is left as it is")
        return
    merged = newest_run(str(QUICKSTART), [], arguments.runs_dir).merged_model
    write_calling_model(merged, arguments.folder)
    print(f"{arguments.folder} has the model of {merged} with the words of a call")


def write_calling_model(merged: Path, folder: Path) -> None:
    """Copy a model folder, with the words added to the tokenizer. Raises FileNotFoundError where there is no model, and
    ValueError where its embedding has no room for them."""
    if not (merged / "config.json").is_file():
        raise FileNotFoundError(f"there is no model in {merged}: call `make demo` first")
    fields = json.loads((merged / "config.json").read_text())
    rows = fields.get("text_config", fields)["vocab_size"]
    tokenizer = AutoTokenizer.from_pretrained(merged)
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    if len(tokenizer) > rows:
        raise ValueError(f"the tokenizer would have {len(tokenizer)} tokens, and the model's embedding has {rows}")
    with committed_folder(folder) as temporary:
        shutil.copytree(merged, temporary, dirs_exist_ok=True)
        tokenizer.save_pretrained(temporary)


if __name__ == "__main__":
    main()
