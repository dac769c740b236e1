"""Speculative decoding: several tokens proposed, checked in one pass of the target."""
