// The entry points of the driver API (cuda.h) that these libraries export, by name. A function that
// changed in a later release has its newer form under a suffix, as in NVIDIA's own library.
#pragma once

// clang-format off

// Those that the fake driver answers as a driver does.
#define WHEELFAB_ANSWERED(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuGetProcAddress) \
  X(cuGetProcAddress_v2) X(cuGetExportTable) X(cuDeviceGetCount) X(cuDeviceGet) \
  X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceGetUuid_v2) X(cuDeviceGetPCIBusId) \
  X(cuDeviceGetByPCIBusId) X(cuDeviceTotalMem_v2) X(cuDeviceGetAttribute) \
  X(cuDeviceComputeCapability) X(cuDeviceCanAccessPeer) X(cuDevicePrimaryCtxRetain) \
  X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxSetFlags_v2) \
  X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetCurrent) X(cuCtxSetCurrent) \
  X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuModuleGetLoadingMode) X(cuModuleLoadData) \
  X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncSetAttribute) \
  X(cuLaunchKernel) X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) \
  X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) \
  X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
  X(cuEventElapsedTime) X(cuStreamWaitEvent) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemGetInfo_v2) \
  X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoD_v2) X(cuMemcpyHtoDAsync_v2) \
  X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2) X(cuMemsetD8_v2) X(cuMemsetD8Async)

// Those that it has and refuses, with CUDA_ERROR_NOT_SUPPORTED: all else that the CUDA runtime 12
// asks for, and what programs link against.
#define WHEELFAB_REFUSED(X) \
  X(cuArray3DCreate) X(cuArray3DCreate_v2) X(cuArray3DGetDescriptor) X(cuArray3DGetDescriptor_v2) \
  X(cuArrayCreate) X(cuArrayCreate_v2) X(cuArrayDestroy) X(cuArrayGetDescriptor) \
  X(cuArrayGetDescriptor_v2) X(cuArrayGetMemoryRequirements) X(cuArrayGetPlane) \
  X(cuArrayGetSparseProperties) X(cuCoredumpGetAttribute) X(cuCoredumpSetAttribute) \
  X(cuCtxAttach) X(cuCtxCreate) X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuCtxCreate_v4) \
  X(cuCtxDestroy) X(cuCtxDestroy_v2) X(cuCtxDetach) X(cuCtxDisablePeerAccess) \
  X(cuCtxEnablePeerAccess) X(cuCtxFromGreenCtx) X(cuCtxGetApiVersion) X(cuCtxGetCacheConfig) \
  X(cuCtxGetDevResource) X(cuCtxGetExecAffinity) X(cuCtxGetFlags) X(cuCtxGetId) X(cuCtxGetLimit) \
  X(cuCtxGetSharedMemConfig) X(cuCtxGetStreamPriorityRange) X(cuCtxPopCurrent) \
  X(cuCtxPushCurrent) X(cuCtxRecordEvent) X(cuCtxResetPersistingL2Cache) X(cuCtxSetCacheConfig) \
  X(cuCtxSetLimit) X(cuCtxSetSharedMemConfig) X(cuCtxWaitEvent) X(cuDestroyExternalMemory) \
  X(cuDestroyExternalSemaphore) X(cuDevResourceGenerateDesc) X(cuDevSmResourceSplitByCount) \
  X(cuDeviceGetDefaultMemPool) X(cuDeviceGetDevResource) X(cuDeviceGetExecAffinitySupport) \
  X(cuDeviceGetGraphMemAttribute) X(cuDeviceGetLuid) X(cuDeviceGetMemPool) \
  X(cuDeviceGetP2PAttribute) X(cuDeviceGetProperties) X(cuDeviceGetTexture1DLinearMaxWidth) \
  X(cuDeviceGraphMemTrim) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset) \
  X(cuDevicePrimaryCtxReset_v2) X(cuDevicePrimaryCtxSetFlags) X(cuDeviceSetGraphMemAttribute) \
  X(cuDeviceSetMemPool) X(cuDeviceTotalMem) X(cuEventDestroy) X(cuEventElapsedTime_v2) \
  X(cuEventRecordWithFlags) X(cuExternalMemoryGetMappedBuffer) \
  X(cuExternalMemoryGetMappedMipmappedArray) X(cuFlushGPUDirectRDMAWrites) X(cuFuncGetAttribute) \
  X(cuFuncGetModule) X(cuFuncGetName) X(cuFuncGetParamInfo) X(cuFuncIsLoaded) X(cuFuncLoad) \
  X(cuFuncSetBlockShape) X(cuFuncSetCacheConfig) X(cuFuncSetSharedMemConfig) \
  X(cuFuncSetSharedSize) X(cuGraphAddBatchMemOpNode) X(cuGraphAddChildGraphNode) \
  X(cuGraphAddDependencies) X(cuGraphAddEmptyNode) X(cuGraphAddEventRecordNode) \
  X(cuGraphAddEventWaitNode) X(cuGraphAddExternalSemaphoresSignalNode) \
  X(cuGraphAddExternalSemaphoresWaitNode) X(cuGraphAddHostNode) X(cuGraphAddKernelNode) \
  X(cuGraphAddKernelNode_v2) X(cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode) \
  X(cuGraphAddMemcpyNode) X(cuGraphAddMemsetNode) X(cuGraphAddNode) X(cuGraphAddNode_v2) \
  X(cuGraphChildGraphNodeGetGraph) X(cuGraphClone) X(cuGraphConditionalHandleCreate) \
  X(cuGraphCreate) X(cuGraphDebugDotPrint) X(cuGraphDestroy) X(cuGraphDestroyNode) \
  X(cuGraphEventRecordNodeGetEvent) X(cuGraphEventRecordNodeSetEvent) \
  X(cuGraphEventWaitNodeGetEvent) X(cuGraphEventWaitNodeSetEvent) \
  X(cuGraphExecChildGraphNodeSetParams) X(cuGraphExecDestroy) \
  X(cuGraphExecEventRecordNodeSetEvent) X(cuGraphExecEventWaitNodeSetEvent) \
  X(cuGraphExecExternalSemaphoresSignalNodeSetParams) \
  X(cuGraphExecExternalSemaphoresWaitNodeSetParams) X(cuGraphExecGetFlags) \
  X(cuGraphExecHostNodeSetParams) X(cuGraphExecKernelNodeSetParams) \
  X(cuGraphExecKernelNodeSetParams_v2) X(cuGraphExecMemcpyNodeSetParams) \
  X(cuGraphExecMemsetNodeSetParams) X(cuGraphExecNodeSetParams) X(cuGraphExecUpdate) \
  X(cuGraphExecUpdate_v2) X(cuGraphExternalSemaphoresSignalNodeGetParams) \
  X(cuGraphExternalSemaphoresSignalNodeSetParams) X(cuGraphExternalSemaphoresWaitNodeGetParams) \
  X(cuGraphExternalSemaphoresWaitNodeSetParams) X(cuGraphGetEdges) X(cuGraphGetEdges_v2) \
  X(cuGraphGetNodes) X(cuGraphGetRootNodes) X(cuGraphHostNodeGetParams) \
  X(cuGraphHostNodeSetParams) X(cuGraphInstantiate) X(cuGraphInstantiateWithFlags) \
  X(cuGraphInstantiateWithParams) X(cuGraphInstantiate_v2) X(cuGraphKernelNodeCopyAttributes) \
  X(cuGraphKernelNodeGetAttribute) X(cuGraphKernelNodeGetParams) X(cuGraphKernelNodeGetParams_v2) \
  X(cuGraphKernelNodeSetAttribute) X(cuGraphKernelNodeSetParams) X(cuGraphKernelNodeSetParams_v2) \
  X(cuGraphLaunch) X(cuGraphMemAllocNodeGetParams) X(cuGraphMemFreeNodeGetParams) \
  X(cuGraphMemcpyNodeGetParams) X(cuGraphMemcpyNodeSetParams) X(cuGraphMemsetNodeGetParams) \
  X(cuGraphMemsetNodeSetParams) X(cuGraphNodeFindInClone) X(cuGraphNodeGetDependencies) \
  X(cuGraphNodeGetDependentNodes) X(cuGraphNodeGetEnabled) X(cuGraphNodeGetType) \
  X(cuGraphNodeSetEnabled) X(cuGraphNodeSetParams) X(cuGraphReleaseUserObject) \
  X(cuGraphRemoveDependencies) X(cuGraphRetainUserObject) X(cuGraphUpload) \
  X(cuGraphicsMapResources) X(cuGraphicsResourceGetMappedMipmappedArray) \
  X(cuGraphicsResourceGetMappedPointer) X(cuGraphicsResourceGetMappedPointer_v2) \
  X(cuGraphicsResourceSetMapFlags) X(cuGraphicsResourceSetMapFlags_v2) \
  X(cuGraphicsSubResourceGetMappedArray) X(cuGraphicsUnmapResources) \
  X(cuGraphicsUnregisterResource) X(cuGreenCtxCreate) X(cuGreenCtxDestroy) \
  X(cuImportExternalMemory) X(cuImportExternalSemaphore) X(cuIpcCloseMemHandle) \
  X(cuIpcGetEventHandle) X(cuIpcGetMemHandle) X(cuIpcOpenEventHandle) X(cuIpcOpenMemHandle) \
  X(cuIpcOpenMemHandle_v2) X(cuKernelGetAttribute) X(cuKernelGetFunction) X(cuKernelGetLibrary) \
  X(cuKernelGetName) X(cuKernelSetAttribute) X(cuKernelSetCacheConfig) X(cuLaunch) \
  X(cuLaunchCooperativeKernel) X(cuLaunchCooperativeKernelMultiDevice) X(cuLaunchGrid) \
  X(cuLaunchGridAsync) X(cuLaunchHostFunc) X(cuLaunchKernelEx) X(cuLibraryEnumerateKernels) \
  X(cuLibraryGetGlobal) X(cuLibraryGetKernel) X(cuLibraryGetKernelCount) X(cuLibraryGetManaged) \
  X(cuLibraryGetModule) X(cuLibraryGetUnifiedFunction) X(cuLibraryLoadData) \
  X(cuLibraryLoadFromFile) X(cuLibraryUnload) X(cuLinkAddData) X(cuLinkAddData_v2) \
  X(cuLinkAddFile) X(cuLinkAddFile_v2) X(cuLinkComplete) X(cuLinkCreate) X(cuLinkCreate_v2) \
  X(cuLinkDestroy) X(cuMemAddressFree) X(cuMemAddressReserve) X(cuMemAdvise) X(cuMemAdvise_v2) \
  X(cuMemAlloc) X(cuMemAllocAsync) X(cuMemAllocFromPoolAsync) X(cuMemAllocHost) \
  X(cuMemAllocHost_v2) X(cuMemAllocManaged) X(cuMemAllocPitch) X(cuMemAllocPitch_v2) \
  X(cuMemCreate) X(cuMemExportToShareableHandle) X(cuMemFree) X(cuMemFreeAsync) X(cuMemFreeHost) \
  X(cuMemGetAccess) X(cuMemGetAddressRange) X(cuMemGetAddressRange_v2) \
  X(cuMemGetAllocationGranularity) X(cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemGetHandleForAddressRange) X(cuMemGetInfo) X(cuMemHostAlloc) X(cuMemHostGetDevicePointer) \
  X(cuMemHostGetDevicePointer_v2) X(cuMemHostGetFlags) X(cuMemHostRegister) \
  X(cuMemHostRegister_v2) X(cuMemHostUnregister) X(cuMemImportFromShareableHandle) X(cuMemMap) \
  X(cuMemMapArrayAsync) X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolExportPointer) \
  X(cuMemPoolExportToShareableHandle) X(cuMemPoolGetAccess) X(cuMemPoolGetAttribute) \
  X(cuMemPoolImportFromShareableHandle) X(cuMemPoolImportPointer) X(cuMemPoolSetAccess) \
  X(cuMemPoolSetAttribute) X(cuMemPoolTrimTo) X(cuMemPrefetchAsync) X(cuMemPrefetchAsync_v2) \
  X(cuMemRangeGetAttribute) X(cuMemRangeGetAttributes) X(cuMemRelease) \
  X(cuMemRetainAllocationHandle) X(cuMemSetAccess) X(cuMemUnmap) X(cuMemcpy) X(cuMemcpy2D) \
  X(cuMemcpy2DAsync) X(cuMemcpy2DAsync_v2) X(cuMemcpy2DUnaligned) X(cuMemcpy2DUnaligned_v2) \
  X(cuMemcpy2D_v2) X(cuMemcpy3D) X(cuMemcpy3DAsync) X(cuMemcpy3DAsync_v2) X(cuMemcpy3DPeer) \
  X(cuMemcpy3DPeerAsync) X(cuMemcpy3D_v2) X(cuMemcpyAsync) X(cuMemcpyAtoA) X(cuMemcpyAtoA_v2) \
  X(cuMemcpyAtoD) X(cuMemcpyAtoD_v2) X(cuMemcpyAtoH) X(cuMemcpyAtoHAsync_v2) X(cuMemcpyAtoH_v2) \
  X(cuMemcpyDtoA) X(cuMemcpyDtoA_v2) X(cuMemcpyDtoD) X(cuMemcpyDtoDAsync) X(cuMemcpyDtoH) \
  X(cuMemcpyDtoHAsync) X(cuMemcpyHtoA) X(cuMemcpyHtoAAsync_v2) X(cuMemcpyHtoA_v2) X(cuMemcpyHtoD) \
  X(cuMemcpyHtoDAsync) X(cuMemcpyPeer) X(cuMemcpyPeerAsync) X(cuMemsetD16) X(cuMemsetD16Async) \
  X(cuMemsetD16_v2) X(cuMemsetD2D16) X(cuMemsetD2D16Async) X(cuMemsetD2D16_v2) X(cuMemsetD2D32) \
  X(cuMemsetD2D32Async) X(cuMemsetD2D32_v2) X(cuMemsetD2D8) X(cuMemsetD2D8Async) \
  X(cuMemsetD2D8_v2) X(cuMemsetD32) X(cuMemsetD32Async) X(cuMemsetD32_v2) X(cuMemsetD8) \
  X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) X(cuMipmappedArrayGetLevel) \
  X(cuMipmappedArrayGetMemoryRequirements) X(cuMipmappedArrayGetSparseProperties) \
  X(cuModuleEnumerateFunctions) X(cuModuleGetFunctionCount) X(cuModuleGetGlobal) \
  X(cuModuleGetGlobal_v2) X(cuModuleGetSurfRef) X(cuModuleGetTexRef) X(cuModuleLoad) \
  X(cuModuleLoadFatBinary) X(cuMulticastAddDevice) X(cuMulticastBindAddr) X(cuMulticastBindMem) \
  X(cuMulticastCreate) X(cuMulticastGetGranularity) X(cuMulticastUnbind) \
  X(cuOccupancyAvailableDynamicSMemPerBlock) X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) X(cuOccupancyMaxActiveClusters) \
  X(cuOccupancyMaxPotentialBlockSize) X(cuOccupancyMaxPotentialBlockSizeWithFlags) \
  X(cuOccupancyMaxPotentialClusterSize) X(cuParamSetSize) X(cuParamSetv) X(cuPointerGetAttribute) \
  X(cuPointerGetAttributes) X(cuPointerSetAttribute) X(cuProfilerInitialize) X(cuProfilerStart) \
  X(cuProfilerStop) X(cuSignalExternalSemaphoresAsync) X(cuStreamAddCallback) \
  X(cuStreamAttachMemAsync) X(cuStreamBatchMemOp) X(cuStreamBatchMemOp_v2) \
  X(cuStreamBeginCapture) X(cuStreamBeginCaptureToGraph) X(cuStreamCopyAttributes) \
  X(cuStreamDestroy) X(cuStreamGetAttribute) X(cuStreamGetCaptureInfo) \
  X(cuStreamGetCaptureInfo_v2) X(cuStreamGetCaptureInfo_v3) X(cuStreamGetCtx) \
  X(cuStreamGetCtx_v2) X(cuStreamGetDevice) X(cuStreamGetFlags) X(cuStreamGetId) \
  X(cuStreamGetPriority) X(cuStreamIsCapturing) X(cuStreamSetAttribute) \
  X(cuStreamUpdateCaptureDependencies) X(cuStreamUpdateCaptureDependencies_v2) \
  X(cuStreamWaitValue32) X(cuStreamWaitValue32_v2) X(cuStreamWaitValue64) \
  X(cuStreamWaitValue64_v2) X(cuStreamWriteValue32) X(cuStreamWriteValue32_v2) \
  X(cuStreamWriteValue64) X(cuStreamWriteValue64_v2) X(cuSurfObjectCreate) X(cuSurfObjectDestroy) \
  X(cuSurfObjectGetResourceDesc) X(cuSurfRefSetArray) X(cuTensorMapEncodeIm2col) \
  X(cuTensorMapEncodeTiled) X(cuTensorMapReplaceAddress) X(cuTexObjectCreate) \
  X(cuTexObjectDestroy) X(cuTexObjectGetResourceDesc) X(cuTexObjectGetResourceViewDesc) \
  X(cuTexObjectGetTextureDesc) X(cuTexRefCreate) X(cuTexRefDestroy) X(cuTexRefGetAddress) \
  X(cuTexRefGetAddress_v2) X(cuTexRefSetAddress) X(cuTexRefSetAddressMode) \
  X(cuTexRefSetAddress_v2) X(cuTexRefSetArray) X(cuTexRefSetFilterMode) X(cuTexRefSetFlags) \
  X(cuTexRefSetFormat) X(cuThreadExchangeStreamCaptureMode) X(cuUserObjectCreate) \
  X(cuUserObjectRelease) X(cuUserObjectRetain) X(cuWaitExternalSemaphoresAsync)
