"""The work done once per model: training EAGLE-3 heads, and measuring the constants of ARC's tolerance."""
