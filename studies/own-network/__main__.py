"""`python -m studies.own-network`."""

import sys

from studies.command import main
from studies.own import STUDY

sys.exit(main(STUDY))
