"""Programs beside the pipeline, which nothing in it needs: the import of other configs."""
