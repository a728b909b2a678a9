"""Programs beside the pipeline, which nothing in it needs: an importer of configs, and the writers of documentation."""
