"""Making drafts: what a draft is, how its next tokens are scored, where drafts part, and who runs the passes."""
