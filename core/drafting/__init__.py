"""Drafting: the draft, the scores of its next tokens, the tree in which drafts branch, each mode, and their driver."""
