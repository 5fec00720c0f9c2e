"""Many incidents together: records, margins, survival, comparison, the job."""
