"""Training of EAGLE-3 heads and of adapters to a person's text, and calibration of ARC's tolerance."""
