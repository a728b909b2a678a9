"""The kinds of sources that a config may name, one line for each."""

from typing import Annotated

from pydantic import Field

from rl_core.sources.counting import CountingSource
from rl_core.sources.custom import CustomSource
from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource

SingleSource = Annotated[
    CountingSource  # rendered scenes
    | LocalSource  # files of this machine
    | HubSource  # a dataset of the Hugging Face hub
    | CustomSource,  # a user's function
    Field(discriminator="type"),
]
