"""Makes a small wheel for each project that .ci/libtorch knows: the real names and layout, a library that does nothing.

    wheels.py LIBTORCH_SCRIPT LIBRARY FOLDER
"""

import importlib.machinery
import importlib.util
import platform
import sys
import zipfile

script, library, folder = sys.argv[1:]
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("libtorch", script)
libtorch = importlib.util.module_from_spec(importlib.util.spec_from_loader("libtorch", loader))
loader.exec_module(libtorch)

for name, version, _, _ in libtorch.CUDA_WHEELS:
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(f"{folder}/{stem}-py3-none-manylinux_2_28_{platform.machine()}.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")
        if name == "torch":
            wheel.writestr("torch/version.py", f"__version__ = '{version}+cu130'\n")
            wheel.writestr("torch/include/torch/csrc/api/include/torch/torch.h", "")
            wheel.writestr("torch/nn/functional.py", "")
            wheel.write(library, "torch/lib/libtorch_cpu.so")
            wheel.write(library, "torch/lib/libtorch_cuda.so")
        else:
            wheel.write(library, f"nvidia/cu13/lib/lib{name}.so")
