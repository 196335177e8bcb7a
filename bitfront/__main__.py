"""`python -m bitfront` is the command `bitfront`."""

import sys

from bitfront.cli import main

sys.exit(main())
