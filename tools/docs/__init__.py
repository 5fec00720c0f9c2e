"""The parts of the documentation that are made from the code: tables of the site, and the manual pages.

mkdocs build            calls `hook.py`: the placeholders of docs/ become the tables of `generated.py`
python -m tools.docs DIRECTORY      writes the manual pages
"""
