"""The jobs: each `run(engine, workspace, options)` reads tables of a workspace and writes others, again and again."""
