"""
The script has all verbs and options; runs and sites are read from their folders
when you press Tab, without starting Python. Make it again after an upgrade.

examples:
  torusrun completion bash > ~/.local/share/bash-completion/completions/torusrun
  torusrun completion fish > ~/.config/fish/completions/torusrun.fish
  torusrun completion zsh > ~/.torusrun.zsh    # and in ~/.zshrc: source ~/.torusrun.zsh
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.completion import bash, fish

    scripts = {"bash": bash.script, "zsh": bash.zsh_script, "fish": fish.script}
    print(scripts[args.shell](), end="")
    return DONE
