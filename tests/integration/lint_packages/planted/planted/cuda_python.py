from cuda import cuda, cudart
from cuda.bindings import driver, runtime
from cuda.core.experimental import Device

cuda.cuInit(0)  # bad: cuda-python
cudart.cudaGetDeviceCount()  # bad: cuda-python
driver.cuDeviceGetCount()  # bad: cuda-python
runtime.cudaRuntimeGetVersion()  # bad: cuda-python
DEVICE = Device(0)  # bad: cuda-python
