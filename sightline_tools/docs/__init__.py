"""Writers of tables and pages of the documentation (`make docs`)."""
