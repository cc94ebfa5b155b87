"""Plans into text: the Jinja2 environment, in which every value is quoted for the shell unless it says otherwise."""
