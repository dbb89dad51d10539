"""Sources of data, one file for each kind."""
