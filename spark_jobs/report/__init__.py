"""The report: small tables of a workspace become documents, and these HTML, Markdown, JSON, SVG and PNG."""
