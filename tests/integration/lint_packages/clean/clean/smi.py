import subprocess


def devices() -> bytes:
    return subprocess.check_output(["nvidia-smi", "-L"])


VERSION = subprocess.run(["ldd", "--version"], check=False)
