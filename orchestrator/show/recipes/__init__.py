"""The published recipes, as `torusrun recipes` shows them."""
