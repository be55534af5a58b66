"""All tests. A response field that its struct has in no version is an error here, in processes that tests start too."""

import os

os.environ.setdefault("MILENA_STRICT_FIELDS", "1")
