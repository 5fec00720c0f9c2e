"""Attacks, and what a running broker does about them."""
