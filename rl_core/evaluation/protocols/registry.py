"""Protocols by name."""

import difflib
from collections.abc import Mapping
from typing import Final

from rl_core.evaluation.protocols.easyr1 import CLEVR_COUNT_EASYR1, GEO3K_EASYR1, GEOQA_EASYR1, MATH12K_EASYR1
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.evaluation.protocols.r1v import GEOQA_R1V, SUPERCLEVR_R1V

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
    """Look up a protocol by its name and version. Raises ValueError with the most similar name, or with all names."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    close = difflib.get_close_matches(name, PROTOCOLS, n=1, cutoff=0.5)
    advice = f"did you mean {close[0]}?" if close else f"there is {', '.join(PROTOCOLS)}"
    raise ValueError(f"there is no evaluation protocol {name!r}; {advice}")
