"""The verbs through ssh: sessions with login nodes, torusrun installed there, the runs that were submitted there."""
