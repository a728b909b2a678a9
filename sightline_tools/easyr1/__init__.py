"""The importer of EasyR1's configurations."""
