"""Makes the Python wheel, whose only content is the program: wheel.py SOURCE VERSION BINARY OUTPUT.

It has `tpgen` among its scripts, and the plans and the types for editors below share/. The binary needs the C library alone.
"""
import base64
import hashlib
import os
import platform
import subprocess
import sys
import zipfile

source, version, binary, output = sys.argv[1:]
name = f"tpgen-{version}"
tag = f"py3-none-linux_{platform.machine()}"
texts = {
    f"{name}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: tpgen\nVersion: {version}\nLicense: MIT\n"
    "Summary: compiler of model and parallel plan to C or CUDA programs, one a rank\n"
    "Description-Content-Type: text/markdown\n\n" + open(os.path.join(source, "README.md"), encoding="utf-8").read(),
    f"{name}.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: tpgen\nRoot-Is-Purelib: false\nTag: {tag}\n",
}
texts[f"{name}.data/data/share/tpgen/types/tpgen.lua"] = subprocess.run(
    [binary, "--reference=types"], check=True, capture_output=True, text=True).stdout
files = {f"{name}.data/scripts/tpgen": binary, f"{name}.dist-info/LICENSE": os.path.join(source, "LICENSE")}
for folder, _, names in sorted(os.walk(os.path.join(source, "plans"))):
    for file in sorted(names):
        path = os.path.join(folder, file)
        files[f"{name}.data/data/share/tpgen/{os.path.relpath(path, source)}"] = path


def sha256(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


record = []
with zipfile.ZipFile(os.path.join(output, f"{name}-{tag}.whl"), "w", zipfile.ZIP_DEFLATED) as wheel:
    def add(path, content, mode):
        info = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
        info.external_attr = mode << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(info, content)
        record.append(f"{path},sha256={sha256(content)},{len(content)}")

    for path, file in files.items():
        with open(file, "rb") as f:
            add(path, f.read(), 0o100755 if file == binary else 0o100644)
    for path, text in texts.items():
        add(path, text.encode(), 0o100644)
    record.append(f"{name}.dist-info/RECORD,,")
    add(f"{name}.dist-info/RECORD", ("\n".join(record) + "\n").encode(), 0o100644)
print(os.path.join(output, f"{name}-{tag}.whl"))
