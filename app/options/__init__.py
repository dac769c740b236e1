"""The options of drafting as people and programs give them, and what they select."""
