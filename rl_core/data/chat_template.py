"""Replaces the chat template in a model's folder, which trainer, generator and the merged model read."""

from pathlib import Path

from rl_core.files import atomic_write_json, atomic_write_text, read_json, remove_folder

_TEMPLATE_FILE = "chat_template.jinja"
# Places where older checkpoints keep a template, which would win over the file or be refused beside it.
_OLDER_FILE = "chat_template.json"
_OTHERS_FOLDER = "additional_chat_templates"
_SETTINGS_FILES = ("tokenizer_config.json", "processor_config.json", "preprocessor_config.json")


def replace_chat_template(folder: Path, template: str) -> None:
    """Make `template` the only chat template of a Hugging Face folder.

    Files are replaced and never changed in place, so the files of a linked checkpoint stay as they are.

    Args:
        folder: Model folder.
        template: Jinja text, with the variables that transformers gives a chat template.
    """
    atomic_write_text(folder / _TEMPLATE_FILE, template)
    (folder / _OLDER_FILE).unlink(missing_ok=True)
    if (folder / _OTHERS_FOLDER).is_dir():
        remove_folder(folder / _OTHERS_FOLDER)
    for path in (folder / name for name in _SETTINGS_FILES):
        settings = read_json(path) if path.is_file() else {}
        if settings.pop("chat_template", None) is not None:
            atomic_write_json(path, settings)
