"""A package index without a network: `pip download` takes wheels from a folder, notes each, and fails when told to.

INDEX is the folder, PIP_LOG the file that gets a line for each wheel, PIP_FAILS the project that fails, PIP_SAYS with what.
"""

import glob
import os
import shutil
import sys

assert sys.argv[1] == "download" and "--no-deps" in sys.argv, sys.argv
name, version = sys.argv[-1].split("==")
if name == os.environ.get("PIP_FAILS"):
    sys.exit(os.environ["PIP_SAYS"])
(wheel,) = glob.glob(f"{os.environ['INDEX']}/{name.replace('-', '_')}-{version}-*.whl")
shutil.copy(wheel, sys.argv[sys.argv.index("--dest") + 1])
with open(os.environ["PIP_LOG"], "a") as log:
    print(name, file=log)
