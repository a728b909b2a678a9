"""What is known of the data sources of a config without reading all their rows, and the problems that this shows."""

import difflib
from collections.abc import Collection, Iterator, Mapping

from rl_core.config.run import RunConfig
from rl_core.problem import Problem
from rl_core.sources.mixture import joint_glance
from rl_core.sources.source import DataSource, Glance


def glance_at(config: RunConfig) -> dict[str, Glance]:
    """[key] -> glance of every source; the sources of a mixture have keys of their own."""
    return {key: _glance(source) for key, source in config.sources()}


def split_glance(split: DataSource, key: str, glances: Mapping[str, Glance]) -> Glance:
    """The glance of a split. Where the split cannot be read, nothing is known of it."""
    if not split.parts:
        return glances[key]
    parts = {name: glances[f"{key}.sources.{name}"] for name in split.parts}
    return joint_glance(parts, names_rows=split.names_its_rows)


def _glance(source: DataSource) -> Glance:
    try:
        return source.glance()
    except (ValueError, OSError) as error:
        return Glance(problem=str(error))


def source_problems(config: RunConfig, glances: Mapping[str, Glance]) -> list[Problem]:
    """Problems with sources that cannot be read, and with names of sources and columns that do not exist."""
    problems = [
        Problem(where=key, what=glance.problem, fix="correct the path, the columns or the file")
        for key, glance in glances.items()
        if glance.problem is not None
    ]
    train = split_glance(config.data.train, "data.train", glances)
    validation = split_glance(config.data.validation, "data.validation", glances)
    if train.names is not None and not config.data.train.parts:  # planning looks at mixtures
        problems += weight_name_problems(config, train.names)
    if train.names is not None and validation.names is not None:
        problems += judged_name_problems(config, train.names | validation.names)
    if validation.columns is not None:
        problems += category_problems(config, validation.columns)
    return problems


def weight_name_problems(config: RunConfig, names: Collection[str]) -> Iterator[Problem]:
    """Problems with weights of data sources that the training rows do not have, and with data sources without a
    weight."""
    weights = config.data.source_weights
    if weights is not None and set(weights) != set(names):
        yield Problem(
            where="data.source_weights",
            what=f"it names {', '.join(weights) or 'nothing'}, and the training rows are of {', '.join(sorted(names))}",
            fix="give each data source a weight, or set it to null",
        )


def judged_name_problems(config: RunConfig, names: Collection[str]) -> Iterator[Problem]:
    """Problems with rewards for data sources that no row has: fatal where a data source has a similar name, which
    suggests a typing error; else a warning, since the table may serve other data too."""
    for name in sorted(set(config.reward.by_source) - set(names)):
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        yield Problem(
            where=f"reward.by_source.{name}",
            what=f"no row is of a data source of that name; they are of {', '.join(sorted(names))}{meant}",
            fix="correct the name, or leave it out",
            fatal=bool(close),
        )


def category_problems(config: RunConfig, columns: Collection[str]) -> Iterator[Problem]:
    """Problems with columns of `evaluation.categories` that no held-out row has."""
    for name in config.evaluation.categories:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1, cutoff=0.6)
            there = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(sorted(columns)) or 'none'}"
            yield Problem(
                where="evaluation.categories",
                what=f"{name!r} is no further column of the held-out rows; {there}",
                fix="name columns that they have",
            )
