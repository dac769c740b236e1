"""The download of a model that someone clicked for on the page, in a process of its own."""
