"""Seeds that depend only on what they are used for (docs/architecture.md, "Keyed randomness")."""

import hashlib

SeedKey = str | int


def keyed_seed(run_seed: int, purpose: str, *key: SeedKey) -> int:
    """A 63-bit seed, which torch, numpy and vLLM all accept, from (run seed, purpose, epoch, step, prompt uid, sample
    index, ...). The same key gives the same seed on every machine and in every order of arrival. Because it is taken
    from a SHA-256, seeds of similar keys are unrelated, unlike with `seed + i`."""
    parts = [str(run_seed), purpose, *(f"{type(part).__name__}:{part}" for part in key)]
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
