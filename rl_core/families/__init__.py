"""The model families that Sightline trains. Each is a file with what differs from the generic path, and nothing
else."""
