"""The draft methods by name: one file each. `core/superposed.py` is the one of the paper."""
