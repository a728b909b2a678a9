r"""Minerva's normalisation of a final answer (Lewkowycz et al. 2022, arXiv 2206.14858, appendix D.1), used by `dapo`.

The order of the replacements matters and is the published one, with its oddities: every "a " is removed, even at the
end of "alpha ", and "\text{m}" becomes nothing.
"""

import re

_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
)

_WORDS = re.split(
    r"\s+",
    r"square ways integers dollars mph inches hours km units \ldots sue points feet minutes digits cents degrees cm gm "
    r"pounds meters meals edges students childrentickets multiples",
)

_MARKS = (
    "\\text{s}",
    "\\text{.}",
    "\\text{\ns}",
    "\\text{}^2",
    "\\text{}^3",
    "\\text{\n}",
    "\\text{}",
    "\\mathrm{th}",
    "^\\circ",
    "^{\\circ}",
    "\\;",
    ",\\!",
    "{,}",
    '"',
    "\\dots",
)

_REWRITTEN = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(.*?)(\$)(.*?)(\$)(.*)", r"$\3$"),  # the mathematics of a sentence
        (r"(\\text\{)(.*?)(\})", r"\2"),
        (r"(\\textbf\{)(.*?)(\})", r"\2"),
        (r"(\\overline\{)(.*?)(\})", r"\2"),
        (r"(\\boxed\{)(.*)(\})", r"\2"),
        (r"(frac)([^{])(.)", r"frac{\2}{\3}"),  # \frac12 is \frac{1}{2}
        (r"(sqrt)([^{])", r"sqrt{\2}"),  # \sqrt3 is \sqrt{3}
    )
)


def normalise_answer(answer: str) -> str:
    """The normalised answer; two answers are equal if their normalised texts are."""
    form = answer.split("=")[-1]
    for before, after in _REPLACED:
        form = form.replace(before, after)
    for removed in (*_WORDS, *_MARKS):
        form = form.replace(removed, "")
    for pattern, replacement in _REWRITTEN:
        form = pattern.sub(replacement, form)
    form = form.replace("$", "")
    if form.replace(",", "").isdigit():
        form = form.replace(",", "")
    return form.strip()
