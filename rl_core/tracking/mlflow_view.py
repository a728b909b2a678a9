"""The columns that matter first, as a view that MLflow's pages offer under "Views" and open by a link.

MLflow has no setting for a table's columns. It keeps the views that people save, as tags of their experiment, and the
link that it gives out for sharing one names the tag. So a view is a tag here, in MLflow's own form.
"""

import json
from typing import Final

NAME: Final = "Accuracy before and after"
"""What the page's menu calls it."""

_KEY: Final = "sightline"
TAG: Final = f"mlflow.sharedViewState.{_KEY}"
QUERY: Final = f"viewStateShareKey={_KEY}&compareRunsMode=TABLE"
"""Opens the view on an experiment's page of runs."""

_RUN_NAME: Final = "attributes.`Run Name`"
_WIDTHS: Final = {
    "metrics.`accuracy/base`": 130,
    "metrics.`accuracy/trained`": 150,
    "tags.`algorithm`": 170,
    "tags.`model`": 170,
    "tags.`seed`": 70,
}
"""Pixels of each column, in order."""
_MADE_AT: Final = 1767225600000
"""Milliseconds since 1970, which MLflow wants of a view; always the same, as the view is."""


def view_tag(search: str) -> str:
    """The value of TAG: the runs that this filter of MLflow's finds, the newest first."""
    state = {
        "searchFilter": search,
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": list(_WIDTHS),
        "columnOrder": [_RUN_NAME, *_WIDTHS],
        "columnWidths": {_RUN_NAME: 300, **_WIDTHS},
    }
    return json.dumps({"name": NAME, "createdAt": _MADE_AT, "updatedAt": _MADE_AT, "state": json.dumps(state)})
