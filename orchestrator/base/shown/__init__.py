"""Values before they are text: tables, curves, numbers."""
