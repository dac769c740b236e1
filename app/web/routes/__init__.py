"""The HTTP routes of the page. Each calls one method of the folder that does the work."""
