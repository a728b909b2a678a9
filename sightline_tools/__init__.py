"""Programs that nothing in the pipeline needs: an importer of configs, and the writers of documentation."""
