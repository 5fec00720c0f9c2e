"""What the text of a line says, behind its head: tables of patterns, one module for each software (pure)."""
