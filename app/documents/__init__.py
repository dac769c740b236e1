"""Documents that are kept as plain text files."""
