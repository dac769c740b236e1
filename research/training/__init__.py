"""Training of what the papers need: draft heads for EAGLE-3, and the adapter to prose."""
