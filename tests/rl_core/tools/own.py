"""Tools as a user writes them: each does what its name says."""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

from PIL import Image


def multiplied(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b


def found(sample, word: str) -> dict:
    """Look a word up in the row.

    Args:
        word: The word.
    """
    if word not in sample.extra:
        raise ValueError(f"nothing is known of {word}")
    return {"word": word, "meaning": sample.extra[word], "question": sample.question}


def cut_out(sample, x1: int, y1: int, x2: int, y2: int) -> list:
    """Cut a part out of the first image.

    Args:
        x1: Left edge in pixels.
        y1: Upper edge in pixels.
        x2: Right edge in pixels.
        y2: Lower edge in pixels.
    """
    part = sample.images()[0].crop((x1, y1, x2, y2))
    return [part.resize((4 * part.width, 4 * part.height)), f"{part.width} x {part.height} pixels"]


async def waited(seconds: float) -> str:
    """Wait for a while.

    Args:
        seconds: How long.
    """
    await asyncio.sleep(seconds)
    if seconds == 0.0:
        raise ValueError("wait longer")
    return "waited"


def drawn() -> float:
    """Draw a number."""
    return random.random()


def dawdled(sample, file: str) -> str:
    """Take a while, each time another one, and count the call.

    Args:
        file: A file with a line for each call.
    """
    time.sleep(os.urandom(1)[0] / 2560)
    with Path(file).open("a") as out:
        out.write(f"{sample.sample_index}\n")
    return f"of {sample.sample_index}: {random.random()}"


def harmful(harm: str) -> object:
    """Do harm.

    Args:
        harm: Which.
    """
    match harm:
        case "raises":
            raise KeyError("a secret of the tool")
        case "hangs":
            time.sleep(60)
        case "exits":
            os._exit(0)
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "forks":
            os.fork()
        case "fills the memory":
            return str(bytearray(10 * 2**30))
        case "gives nothing":
            return None
        case "gives an object":
            return object()
        case "gives half a letter":
            return "half \ud83d"
        case "gives a long text":
            return "word " * 10**7
        case "gives a large image":
            return Image.new("RGB", (3000, 2000), "red")
    return "unharmed"


def undescribed(a: int) -> int:
    """Lacks the description of its parameter."""
    return a


def untyped(a) -> int:
    """Lacks a type.

    Args:
        a: A number.
    """
    return a
