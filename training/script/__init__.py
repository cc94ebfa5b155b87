"""What a script of the user's own gets by `import torusrun`: see entry/torusrun/."""
