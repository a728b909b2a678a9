"""Protocols by name."""

import difflib
from collections.abc import Mapping
from typing import Final

from rl_core.evaluation.protocols.clevr_count_easyr1 import CLEVR_COUNT_EASYR1
from rl_core.evaluation.protocols.geo3k_easyr1 import GEO3K_EASYR1
from rl_core.evaluation.protocols.geoqa_easyr1 import GEOQA_EASYR1
from rl_core.evaluation.protocols.geoqa_r1v import GEOQA_R1V
from rl_core.evaluation.protocols.math12k_easyr1 import MATH12K_EASYR1
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.evaluation.protocols.superclevr_r1v import SUPERCLEVR_R1V

PROTOCOLS: Final[Mapping[str, Protocol]] = {
    protocol.name: protocol
    for protocol in (
        GEO3K_EASYR1,
        CLEVR_COUNT_EASYR1,
        GEOQA_EASYR1,
        MATH12K_EASYR1,
        SUPERCLEVR_R1V,
        GEOQA_R1V,
    )
}


def protocol_named(name: str) -> Protocol:
    """The protocol of that name and version. Raises ValueError naming the nearest one, or all there are."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    close = difflib.get_close_matches(name, PROTOCOLS, n=1, cutoff=0.5)
    advice = f"did you mean {close[0]}?" if close else f"there is {', '.join(PROTOCOLS)}"
    raise ValueError(f"there is no evaluation protocol {name!r}; {advice}")
