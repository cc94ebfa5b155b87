"""One HTML file about runs: facts.py reads them, the other files make its parts, and document.py puts them together."""
