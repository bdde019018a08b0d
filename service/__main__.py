"""`python -m service`, and the command `instance-selector`."""

import gc
import sys

gc.disable()  # what modules make while they load is no garbage, and to look for some takes a tenth of the time

from service.cli import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    sys.exit(main())
