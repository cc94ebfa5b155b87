"""Whether an attempt makes progress: signs, limits, and the rank that holds up the others."""
