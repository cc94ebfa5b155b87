"""Text from templates: a Jinja2 environment that quotes every value for the shell, unless it is a `Text`."""
