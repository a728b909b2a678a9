"""The section `model`: which layers LoRA adapts is a pattern or a list."""

import pytest

from rl_core.config.loading import ConfigError, load_config
from tests.rl_core.config.test_loading import REPOSITORY

QUICKSTART = REPOSITORY / "configs/quickstart.yaml"


@pytest.mark.parametrize("key", ["target_modules", "exclude_modules"])
def test_a_text_that_is_no_pattern_is_refused(key):
    with pytest.raises(ConfigError, match=rf"model\.lora\.{key}: .*must be a regular expression, and missing \)"):
        load_config(QUICKSTART, [f"model.lora={{{key}: (q_proj}}"])


@pytest.mark.parametrize("pattern", ["a{9999999999999}", "(" * 3000])
def test_a_pattern_that_python_cannot_take_is_refused_with_its_key(pattern):
    with pytest.raises(ConfigError, match=r"model\.lora\.target_modules: .*must be a regular expression"):
        load_config(QUICKSTART, [f"model.lora={{target_modules: '{pattern}'}}"])


@pytest.mark.parametrize("names", ["'.*q_proj'", "['(q_proj', v_proj]", "all-linear"])
def test_names_in_a_list_are_no_patterns(names):
    assert load_config(QUICKSTART, [f"model.lora={{target_modules: {names}}}"]).model.lora is not None
