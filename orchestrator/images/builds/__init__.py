"""Images of definitions, in a cache by content: one build at a time, its log, and what it installed."""
