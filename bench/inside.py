"""What runs in an enclosure: `python -m bench.inside PART OPTIONS DIRECTORY` prints the part's report as JSON."""

import importlib
import logging
import sys
import warnings
from pathlib import Path

import msgspec

from bench.options import Options


def main() -> None:
    part, options, directory = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    measure = importlib.import_module(f"bench.{part}").measure
    report = measure(msgspec.json.decode(options, type=Options), Path(directory))
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
