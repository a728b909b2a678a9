"""A view with the most important columns, which MLflow's pages offer under "Views" and open by a link.

MLflow has no setting for the columns of a table. It stores the views that people save as tags of their experiment, and
the link for sharing a view names the tag. So the view is such a tag, in MLflow's own format.
"""

import json
from typing import Final

NAME: Final = "Accuracy before and after"
"""Name of the view in the page's menu."""

_KEY: Final = "sightline"
TAG: Final = f"mlflow.sharedViewState.{_KEY}"
QUERY: Final = f"viewStateShareKey={_KEY}&compareRunsMode=TABLE"
"""Query that opens the view on an experiment's page of runs."""

_RUN_NAME: Final = "attributes.`Run Name`"
_WIDTHS: Final = {
    "metrics.`accuracy/base`": 130,
    "metrics.`accuracy/trained`": 150,
    "tags.`algorithm`": 170,
    "tags.`model`": 170,
    "tags.`seed`": 70,
}
"""Width of each column in pixels, in order."""
_MADE_AT: Final = 1767225600000
"""Time of creation in milliseconds since 1970, which MLflow requires; constant, since the view is constant."""


def view_tag(search: str) -> str:
    """The value of TAG: a view of the runs that MLflow's filter `search` finds, the newest first."""
    state = {
        "searchFilter": search,
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": list(_WIDTHS),
        "columnOrder": [_RUN_NAME, *_WIDTHS],
        "columnWidths": {_RUN_NAME: 300, **_WIDTHS},
    }
    return json.dumps({"name": NAME, "createdAt": _MADE_AT, "updatedAt": _MADE_AT, "state": json.dumps(state)})
