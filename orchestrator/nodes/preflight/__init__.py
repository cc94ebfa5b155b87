"""Checks of an attempt's nodes, each alone and then in pairs, before its ranks start."""
