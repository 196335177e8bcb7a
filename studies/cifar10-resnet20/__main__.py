"""`python -m studies.cifar10-resnet20`."""

import sys

from studies.cifar10 import STUDY
from studies.command import main

sys.exit(main(STUDY))
