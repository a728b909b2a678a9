import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rl_core.data.prompts import PromptTemplate
from rl_core.evaluation.protocols.easyr1 import GEO3K_EASYR1
from rl_core.evaluation.protocols.protocol import Protocol, code_digest
from rl_core.evaluation.protocols.r1v import GEOQA_R1V
from rl_core.evaluation.protocols.registry import PROTOCOLS, protocol_named
from rl_core.rewards.registry import resolve_rewards

CONFIGS = Path(__file__).parents[4] / "configs"


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_every_protocol_is_whole(protocol: Protocol) -> None:
    PromptTemplate(protocol.prompt)
    (spec,) = resolve_rewards(protocol.reward_config()).specs
    assert spec.has_parser, "a result says how many responses hold no answer"
    config = protocol.evaluation_config()
    assert (config.modes, config.n, config.temperature) == (
        (protocol.answering.mode,),
        protocol.answering.n,
        protocol.answering.temperature,
    )
    assert all(protocol.judging.versions().values())
    name, _, version = protocol.name.rpartition("@")
    assert name and version.isdecimal()


def test_protocols_have_digests_of_their_own() -> None:
    assert len({protocol.digest() for protocol in PROTOCOLS.values()}) == len(PROTOCOLS)
    assert GEO3K_EASYR1.digest() == replace(GEO3K_EASYR1).digest()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "geo3k-easyr1@2"},
        {"prompt": GEO3K_EASYR1.prompt + " Please."},
        {"prompt_origin": "another"},
        {"max_prompt_length": 4096},
        {"min_pixels": 1},
        {"max_pixels": 10_000},
        {"answering": replace(GEO3K_EASYR1.answering, temperature=1.0)},
        {"answering": replace(GEO3K_EASYR1.answering, top_p=1.0)},
        {"answering": replace(GEO3K_EASYR1.answering, n=2)},
        {"answering": replace(GEO3K_EASYR1.answering, max_response_length=1024)},
        {"judging": replace(GEO3K_EASYR1.judging, function="r1v")},
        {"judging": replace(GEO3K_EASYR1.judging, kwargs={"grader": "math_verify"})},
        {"judging": replace(GEO3K_EASYR1.judging, code=())},
        {"judging": replace(GEO3K_EASYR1.judging, packages=("numpy",))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_moves_a_number_moves_the_digest(change: dict) -> None:
    assert replace(GEO3K_EASYR1, **change).digest() != GEO3K_EASYR1.digest()


def test_what_a_protocol_is_called_does_not_depend_on_where_it_is_installed() -> None:
    assert GEOQA_R1V.record()["judging"]["function"] == "geoqa_r1v.py:compute_score"


def test_the_words_are_those_that_the_configs_train_with() -> None:
    for name, file in (("geo3k-easyr1@1", "math.jinja"), ("clevr-count-easyr1@1", "r1v.jinja")):
        assert PROTOCOLS[name].prompt == (CONFIGS / "prompts" / file).read_text().strip()


def test_a_prompt_from_a_file_is_told_by_name_and_hash(tmp_path: Path) -> None:
    path = tmp_path / "published.jinja"
    path.write_text("{{ content }} As published.")
    protocol = GEOQA_R1V.with_prompt(path)
    assert protocol.prompt == "{{ content }} As published."
    assert protocol.prompt_origin.startswith("the text of published.jinja, sha256 ")
    assert protocol.digest() != GEOQA_R1V.digest()


def test_several_samples_make_sense_where_something_is_sampled() -> None:
    assert GEO3K_EASYR1.with_samples(8).answering.n == 8
    with pytest.raises(ValueError, match="geoqa-r1v@1 answers greedily"):
        GEOQA_R1V.with_samples(8)


def test_an_unknown_name_leads_to_the_nearest() -> None:
    assert protocol_named("geoqa-r1v@1") is GEOQA_R1V
    with pytest.raises(ValueError, match=r"did you mean geoqa-r1v@1\?"):
        protocol_named("geoqa-r1v@2")
    with pytest.raises(ValueError, match="there is geo3k-easyr1@1, "):
        protocol_named("xyz")


PLAIN = "def half(x):\n    return x / 2\n"


@pytest.fixture
def digest_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)

    def digest(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        found = code_digest((name,))
        assert name not in sys.modules, "it is read, not imported"
        return found

    return digest


def test_words_and_layout_do_not_count_and_code_does(digest_of) -> None:
    worded = '"""A module."""\n\n\ndef half( x ):  # a comment\n    """Half."""\n    return x/2\n'
    assert digest_of("scorer_a", PLAIN) == digest_of("scorer_b", worded)
    assert digest_of("scorer_c", PLAIN.replace("2", "3")) != digest_of("scorer_d", PLAIN)
