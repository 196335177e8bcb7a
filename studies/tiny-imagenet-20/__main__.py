"""`python -m studies.tiny-imagenet-20`."""

import sys

from studies.command import main
from studies.tiny_imagenet import STUDY

sys.exit(main(STUDY))
