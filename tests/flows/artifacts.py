"""What a flow run shows on its pages in Prefect."""

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.client.schemas.objects import Artifact


def artifacts_of(flow_run_id: UUID) -> list[Artifact]:
    """The artifacts that a flow run and its tasks left."""
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
    with get_client(sync_client=True) as client:
        return client.read_artifacts(artifact_filter=wanted)
