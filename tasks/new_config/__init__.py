"""`sightline init`: a config for a user's own data."""
