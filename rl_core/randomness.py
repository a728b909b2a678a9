"""Every draw is seeded by what it is for (docs/architecture.md, "Keyed randomness")."""

import hashlib

SeedKey = str | int


def keyed_seed(run_seed: int, purpose: str, *key: SeedKey) -> int:
    """A 63-bit seed from (run seed, purpose, epoch, step, prompt uid, sample index, ...).

    The same key gives the same seed on every machine and in every order of arrival, so an interrupted run continues
    exactly and nothing depends on the number of workers. The upper half of a SHA-256 makes seeds of neighbouring keys
    unrelated, which `seed + i` schemes are not.

    Args:
        run_seed: The run's configured seed.
        purpose: What the draw is for ("rollout", "shuffle", ...); separates streams with equal keys.
        key: The rest of the identity of the draw.

    Returns:
        An integer in [0, 2**63), which torch, numpy and vLLM all accept.
    """
    parts = [str(run_seed), purpose, *(f"{type(part).__name__}:{part}" for part in key)]
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
