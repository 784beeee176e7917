import os
import subprocess

subprocess.run(["nvidia-smi", "-L"], check=False)  # bad: nvidia-smi
OUT = subprocess.check_output("nvidia-smi --query-gpu=name --format=csv", shell=True)  # bad: nvidia-smi
os.system("nvidia-smi")  # bad: nvidia-smi
