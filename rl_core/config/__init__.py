"""The run configuration: pydantic sections, YAML, overrides. Imports no torch."""
