"""Addresses of brokers: three grammars, one result."""
