"""Install the extra spark, and a store like S3 (moto's server, s3fs): `make spark`.

moto asks for the newest boto3, s3fs for one release of botocore that is older; without help pip downloads every release
of boto3 from the newest down to that one. So s3fs comes first, then moto with boto3 at the release of the botocore that
s3fs chose.
"""

from __future__ import annotations

import subprocess
import sys

PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def main() -> int:
    subprocess.run([*PIP, "-e", ".[dev,spark]", "s3fs>=2024.6"], check=True)
    read = "from importlib.metadata import version; print(version('botocore'))"
    botocore = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=True).stdout.strip()
    wanted = ["moto[s3]>=5", "flask", "flask-cors", f"boto3=={botocore}", f"botocore=={botocore}"]
    if subprocess.run([*PIP, *wanted], check=False).returncode:
        print("without moto: the tests of a tier in S3 are skipped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
