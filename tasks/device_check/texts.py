"""What must hold of the configured model, as the table has it. Apart from the checks, which load torch."""

from typing import Final

START: Final = "configured model: the generator starts"
CACHE: Final = "configured model: KV cache as planned"
ROUNDS: Final = "configured model: small batches after each of 3 rounds of sleep agree"
BANNED: Final = "configured model: banned tokens are never sampled"
AGREES: Final = "configured model: generator and trainer agree"
SPEED: Final = "configured model: speed of generation"
PEAK: Final = "configured model: memory of generation as planned"

GENERATOR: Final = (START, CACHE, ROUNDS, BANNED, AGREES, SPEED, PEAK)


def of_update(kind: str) -> tuple[str, str, str]:
    """What must hold of an update with "short" or "long" responses: of its memory, its pinned memory and its speed."""
    begin = f"configured model, {kind} responses:"
    return f"{begin} memory of the update as planned", f"{begin} pinned memory as planned", f"{begin} speed"
