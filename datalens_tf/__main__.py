"""`python -m datalens_tf` is the command `datalens`."""

import sys

from datalens_tf.cli import main

if __name__ == "__main__":
    sys.exit(main())
