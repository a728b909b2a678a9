"""What a flow run shows on its pages in Prefect, and the runs of its tasks."""

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import Artifact, TaskRun


def artifacts_of(flow_run_id: UUID) -> list[Artifact]:
    """The artifacts that a flow run and its tasks left."""
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
    with get_client(sync_client=True) as client:
        return client.read_artifacts(artifact_filter=wanted)


def task_runs_of(flow_run_id: UUID) -> list[TaskRun]:
    """The runs of its tasks, those of all its attempts."""
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    with get_client(sync_client=True) as client:
        return client.read_task_runs(flow_run_filter=wanted)
