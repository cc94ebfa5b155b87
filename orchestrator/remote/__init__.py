"""The verbs through ssh: sessions with login nodes, torusrun installed there, and the runs submitted there."""
