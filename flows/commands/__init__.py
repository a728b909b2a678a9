"""The commands of `sightline`, one file each."""
