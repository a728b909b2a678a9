"""The special tokens of a model, and which of them end a response, by the files of its folder alone: a plan has no time
to load a tokenizer, and a run must not decide otherwise."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from rl_core.families.family import Family
from rl_core.families.registry import reserved_tokens, vision_token_ids
from rl_core.files import read_json, read_utf8
from rl_core.templates import render_chat

PAD_TOKEN: Final = "<|endoftext|>"
TURN_START_TOKEN: Final = "<|im_start|>"
TURN_END_TOKEN: Final = "<|im_end|>"

TEXT_SPECIAL_TOKENS: Final = (PAD_TOKEN, TURN_START_TOKEN, TURN_END_TOKEN)

_NAMED = ("bos_token", "eos_token", "pad_token")
_REPLY = "Sightline"
_TRIED_CHAT = [{"role": "user", "content": "Who asks?"}, {"role": "assistant", "content": _REPLY}]


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseEnds:
    """The tokens that end a response, first those that generation_config.json (or else config.json) names; the one that
    the target of a cold start ends with; and a sentence where the files of the model say different things."""

    ids: tuple[int, ...]
    of_targets: int
    difference: str | None


@dataclass(frozen=True, kw_only=True)
class ModelTokens:
    """What the files of a model say about its tokens.

    Attributes:
        vocabulary: [token] -> id; empty where the folder has none of the files that are read here.
        special: Tokens that are left out of a decoded response.
        named: `bos_token`, `eos_token` and `pad_token`, those of them that there are.
        vision: Tokens that stand for images and videos, which are never sampled.
        chat_template: Its Jinja text, if there is one.
        stated_ends: [file] -> the `eos_token_id`s in it, of each file that has the key.
    """

    vocabulary: Mapping[str, int]
    special: frozenset[str]
    named: Mapping[str, str]
    vision: frozenset[str]
    chat_template: str | None
    stated_ends: Mapping[str, tuple[int, ...]]

    @classmethod
    def read(cls, folder: Path, *, chat_template: str | None = None) -> "ModelTokens":
        """Of a model's folder, with its own chat template or the given one. Raises ValueError where a file is no JSON,
        and OSError where it cannot be read."""
        tokenizer, settings, config = (
            _fields(folder / name) for name in ("tokenizer.json", "tokenizer_config.json", "config.json")
        )
        added = [*tokenizer.get("added_tokens", ())]
        added += [{"id": int(key), **token} for key, token in settings.get("added_tokens_decoder", {}).items()]
        vocabulary = _vocabulary(folder, tokenizer) | {token["content"]: token["id"] for token in added}
        named = _fields(folder / "special_tokens_map.json") | settings
        reserved = reserved_tokens(config)
        vision_ids = vision_token_ids(config).values()
        return cls(
            vocabulary=vocabulary,
            special=frozenset(token["content"] for token in added if token.get("special")),
            named={key: text for key in _NAMED if (text := _text(named.get(key))) is not None},
            vision=frozenset(
                token for token, number in vocabulary.items() if number in vision_ids or token in reserved
            ),
            chat_template=chat_template or _chat_template(folder, settings),
            stated_ends=dict(_stated_ends(folder, config)),
        )

    @classmethod
    def of_tiny(cls, family: Family, *, chat_template: str | None) -> "ModelTokens":
        """Of a tiny model before it is built. Its own chat template writes all of its tokens."""
        vision = () if family.vision is None else family.vision.special_tokens
        special = (*TEXT_SPECIAL_TOKENS, *vision)
        return cls(
            vocabulary={token: number for number, token in enumerate(special)},
            special=frozenset(special),
            named={"eos_token": TURN_END_TOKEN, "pad_token": PAD_TOKEN},
            vision=frozenset(vision),
            chat_template=chat_template or "".join(special),
            stated_ends={"eos_token of the tokenizer": (special.index(TURN_END_TOKEN),)},
        )

    @cached_property
    def controls(self) -> tuple[str, ...]:
        """The tokens that no text of a prompt or a target may contain: those that the chat template writes, that begin,
        end or pad a text, and that stand for images and videos."""
        reserved = {*self.named.values(), *self.vision}
        template = self.chat_template or ""
        found = (token for token in (*self.special, *reserved) if token in reserved or token in template)
        return tuple(sorted(set(found)))

    def check_text(self, text: str, *, name: str) -> None:
        """Raises ValueError, with the name of the text, where it contains a control token: a vision token would have no
        image, and a token of the chat template could begin a turn of another role, or end one."""
        for token in self.controls:
            if token in text:
                purpose = "images and videos" if token in self.vision else "the form of its chats"
                raise ValueError(f"{name} contains {token}, which the model reserves for {purpose}")

    def response_ends(self) -> ResponseEnds:
        """What ends a response: every token that a file names as an end and that can be sampled. Raises ValueError
        where there is none, so that every response would be cut."""
        eos, turn_end = self.named.get("eos_token"), self._turn_end()
        sources = {
            **self.stated_ends,
            "eos_token of the tokenizer": self._ids_of(eos),
            "the end of a turn in the chat template": self._ids_of(turn_end),
        }
        ids = tuple(dict.fromkeys(number for named in sources.values() for number in named if self._is_end(number)))
        by_source = ", ".join(f"{source} is {self._words(named)}" for source, named in sources.items() if named)
        if not ids:
            raise ValueError(f"no token that can be sampled ends a response ({by_source or 'no file of it names one'})")
        (stated, *_) = [*self.stated_ends.values(), ()]
        own = [number for number in self._ids_of(eos) if number in ids]
        return ResponseEnds(
            ids=ids,
            of_targets=own[0] if own else ids[0],
            difference=None if set(stated) == set(ids) else f"its files differ in what ends a response: {by_source}",
        )

    def _words(self, ids: tuple[int, ...]) -> str:
        texts = {number: token for token, number in self.vocabulary.items() if number in ids}
        return " and ".join(texts.get(number, f"{number} (no token of the tokenizer)") for number in ids)

    def _ids_of(self, token: str | None) -> tuple[int, ...]:
        return (self.vocabulary[token],) if token is not None and token in self.vocabulary else ()

    def _is_end(self, number: int) -> bool:
        """Whether it can be sampled; without a vocabulary nothing is known against it."""
        return not self.vocabulary or number in self._sampled

    @cached_property
    def _sampled(self) -> frozenset[int]:
        return frozenset(number for token, number in self.vocabulary.items() if token not in self.vision)

    def _turn_end(self) -> str | None:
        """The special token with which the chat template ends what the model says; None where it writes none, or does
        not render a short chat."""
        if self.chat_template is None:
            return None
        try:
            chat = render_chat(self.chat_template, _TRIED_CHAT, self.named)
        except ValueError:
            return None
        _, reply, after = chat.rpartition(_REPLY)
        ends = (token for token in (*self.special, *self.named.values()) if after.lstrip().startswith(token))
        return max(ends, key=len, default=None) if reply else None


def _fields(path: Path) -> dict[str, Any]:
    fields = read_json(path) if path.is_file() else {}
    if not isinstance(fields, dict):
        raise ValueError(f"{path} is no JSON object")
    return fields


def _vocabulary(folder: Path, tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """The tokens that were learned, and those that old checkpoints keep apart."""
    learned = tokenizer.get("model", {}).get("vocab") or _fields(folder / "vocab.json")
    if not isinstance(learned, Mapping):  # of a unigram model: pairs of a token and its score
        learned = {token: number for number, (token, _) in enumerate(learned)}
    return {**learned, **_fields(folder / "added_tokens.json")}


def _text(token: str | Mapping[str, Any] | None) -> str | None:
    return token["content"] if isinstance(token, Mapping) else token


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """In the order in which transformers looks for it; of several templates the default one."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_utf8(file)
    places = (_fields(folder / "chat_template.json"), _fields(folder / "processor_config.json"), settings)
    found = next((place["chat_template"] for place in places if place.get("chat_template")), None)
    if isinstance(found, list):
        found = {template["name"]: template["template"] for template in found}
    return found.get("default") if isinstance(found, Mapping) else found


def _stated_ends(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    generation = _fields(folder / "generation_config.json")
    for name, fields in {"generation_config.json": generation, "config.json": config}.items():
        for place in (fields, fields.get("text_config") or {}):
            ids = place.get("eos_token_id")
            if ids is not None:
                yield f"eos_token_id in {name}", tuple(ids) if isinstance(ids, list) else (ids,)
                break
