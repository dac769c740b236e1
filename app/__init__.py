"""The user interface: the command line, the page with its editor, HTTP routes and settings."""
