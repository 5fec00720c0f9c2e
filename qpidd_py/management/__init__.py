"""Management: one core (`model`) and the doors that lead to it."""
