"""A strict reader of JSON from elsewhere: where json.loads would silently choose, it raises an error."""

import json
from collections import Counter
from typing import Any


def parse_json(text: str) -> Any:
    """The value that a JSON text stands for.

    Raises:
        ValueError: The text is no JSON, nested too deeply, or has an object with the same key twice. The message is
            the end of a sentence that begins with "the line" or the like.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("has lists and objects that are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"cannot be read: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has the key {name!r} twice")
    return values
