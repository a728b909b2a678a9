"""The commands of `sightline`, one file for each."""
