"""Measurements: `polydraft bench` of speed, each beside a peer, and `polydraft eval` of the drafts' quality."""
