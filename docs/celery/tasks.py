"""A task that leaves a trace: one line in the file RESULTS each time it runs."""

import os

from celery import Celery

app = Celery("tasks")
app.config_from_object("celeryconfig")


@app.task
def note(number: int) -> None:
    with open(os.environ["RESULTS"], "a") as results:
        results.write(f"{number}\n")
