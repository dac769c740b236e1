"""This user's processes, private files and terminal on this machine."""
