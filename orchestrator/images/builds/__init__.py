"""Builds of images into a cache by content: one build at a time, its log, and the packages that it installed."""
