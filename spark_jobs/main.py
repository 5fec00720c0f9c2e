"""The same program as `failover-report`, as a file that spark-submit can be given:

    spark-submit --py-files spark_jobs.zip spark_jobs/main.py report s3a://bucket/clusters/ -o out

Started so, Python looks for modules in this folder, where `schema` or `parse` would hide packages of these names, and
not in the one above, where `spark_jobs` is.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    _HERE = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    if (_HERE / "__init__.py").exists():
        sys.path.insert(0, str(_HERE.parent))

    from spark_jobs.cli.main import main

    sys.exit(main())
