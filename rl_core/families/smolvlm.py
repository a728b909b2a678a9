"""SmolVLM2 (arXiv:2504.05299), images. It sees them as Idefics3 does. vLLM takes none of its videos.

The certificate of SmolVLM2-2.2B fails for its 27 patches a side, as that of SmolVLM-Instruct (`idefics3.py`)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from rl_core.families.family import Family
from rl_core.families.idefics3 import TINY_TILE, TOKENS_OF_A_TINY_TILE, NamedTiles, tiny_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, ProcessorMixin


@dataclass(frozen=True, kw_only=True)
class SmallTiles(NamedTiles):
    """The vision of SmolVLM2."""

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        from transformers import SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor

        size, tile = {"longest_edge": 2 * TINY_TILE}, {"longest_edge": TINY_TILE}
        return SmolVLMProcessor(
            image_processor=SmolVLMImageProcessor(size=size, max_image_size=tile),
            tokenizer=tokenizer,
            video_processor=SmolVLMVideoProcessor(size=size, max_image_size=tile),
            image_seq_len=TOKENS_OF_A_TINY_TILE,
            chat_template=tokenizer.chat_template,
        )


FAMILY: Final = Family(name="smolvlm", model_type="smolvlm", vision=SmallTiles(), tiny_text=tiny_text)
