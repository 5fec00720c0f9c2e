"""From files to rows: the plan, the tasks, the tables."""
