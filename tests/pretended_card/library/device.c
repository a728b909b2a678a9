// The card itself, its modules and kernels, and what the driver's tools say about it (NVML).
#include "card.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void launch(const char *kernel, cudaStream_t stream);

#define DRIVER_VERSION 13000
#define DRIVER_NAME "580.82.07"
#define CARD_NAME "NVIDIA H100 80GB HBM3 (pretended)"

static _Thread_local int current;
int current_card(void) { return current; }

static int all_cards(void) {
  const char *set = getenv("PRETENDED_CARDS");
  int cards = set ? atoi(set) : 1;
  return cards < MOST_CARDS ? cards : MOST_CARDS;
}

static int visible[MOST_CARDS], visible_number;
static pthread_once_t looked_up = PTHREAD_ONCE_INIT;

// As CUDA has it: the list ends at the first number that is no card.
static void look_up_visible(void) {
  const char *set = getenv("CUDA_VISIBLE_DEVICES");
  if (!set) {
    for (; visible_number < all_cards(); visible_number++) visible[visible_number] = visible_number;
    return;
  }
  for (const char *at = set; *at && visible_number < MOST_CARDS;) {
    char *end;
    long card = strtol(at, &end, 10);
    if (end == at || card < 0 || card >= all_cards()) return;
    visible[visible_number++] = (int)card;
    at = *end == ',' ? end + 1 : end;
  }
}

int visible_cards(void) { pthread_once(&looked_up, look_up_visible); return visible_number; }
int physical_card(int card) { return card < visible_cards() ? visible[card] : card; }

size_t card_bytes(void) {
  const char *set = getenv("PRETENDED_CARD_GIB");
  return (size_t)((set ? atof(set) : 79.1) * (double)(1ull << 30));
}

void fill_properties(struct cudaDeviceProp *p, int card) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, CARD_NAME);
  p->totalGlobalMem = card_bytes();
  p->sharedMemPerBlock = 49152; p->sharedMemPerBlockOptin = 232448; p->sharedMemPerMultiprocessor = 233472; p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = 65536; p->regsPerMultiprocessor = 65536; p->warpSize = 32; p->maxThreadsPerBlock = 1024; p->maxThreadsPerMultiProcessor = 2048;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxBlocksPerMultiProcessor = 32; p->totalConstMem = 65536; p->major = 9; p->multiProcessorCount = 132;
  p->canMapHostMemory = p->unifiedAddressing = p->managedMemory = p->concurrentManagedAccess = p->cooperativeLaunch = p->concurrentKernels = 1;
  p->asyncEngineCount = 3; p->memoryBusWidth = 5120; p->l2CacheSize = 50 << 20; p->textureAlignment = 512;
  p->pciBusID = physical_card(card) + 1;
  p->uuid.bytes[0] = 1;
  p->uuid.bytes[15] = (char)(physical_card(card) + 1);
}

int card_attribute(int attribute) {
  struct cudaDeviceProp p;
  fill_properties(&p, 0);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: return p.maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return p.maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimZ: return p.maxThreadsDim[2];
    case cudaDevAttrMaxGridDimX: return p.maxGridSize[0];
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return p.maxGridSize[1];
    case cudaDevAttrMaxSharedMemoryPerBlock: return (int)p.sharedMemPerBlock;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return (int)p.sharedMemPerBlockOptin;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return (int)p.sharedMemPerMultiprocessor;
    case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
    case cudaDevAttrTotalConstantMemory: return (int)p.totalConstMem;
    case cudaDevAttrWarpSize: return p.warpSize;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return p.regsPerBlock;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return p.maxBlocksPerMultiProcessor;
    case cudaDevAttrMultiProcessorCount: return p.multiProcessorCount;
    case cudaDevAttrComputeCapabilityMajor: return p.major;
    case cudaDevAttrComputeCapabilityMinor: return p.minor;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrMemoryClockRate: return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth: return p.memoryBusWidth;
    case cudaDevAttrL2CacheSize: return p.l2CacheSize;
    case cudaDevAttrAsyncEngineCount: return p.asyncEngineCount;
    case cudaDevAttrPciBusId: return p.pciBusID;
    case cudaDevAttrTextureAlignment: return 512;
    case cudaDevAttrConcurrentKernels: case cudaDevAttrUnifiedAddressing: case cudaDevAttrCanMapHostMemory: case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess: case cudaDevAttrCooperativeLaunch: case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrStreamPrioritiesSupported: case cudaDevAttrGpuOverlap:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: return 1;
    default: return 0;  // among them multicast and GPUDirect, which are not pretended
  }
}

// Which card.

static cudaError_t check(int card) {
  return visible_cards() == 0 ? cudaErrorNoDevice : card < 0 || card >= visible_cards() ? cudaErrorInvalidDevice : cudaSuccess;
}
static _Thread_local cudaError_t last_error;
static cudaError_t answered(cudaError_t error) { if (error) last_error = error; return error; }

EXPORT cudaError_t cudaGetDeviceCount(int *cards) { *cards = visible_cards(); return answered(*cards ? cudaSuccess : cudaErrorNoDevice); }
EXPORT cudaError_t cudaGetDevice(int *card) { *card = current; return answered(check(0)); }
EXPORT cudaError_t cudaSetDevice(int card) { cudaError_t error = check(card); if (!error) current = card; return answered(error); }
EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int card) { fill_properties(properties, card); return answered(check(card)); }
EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int card) { *value = card_attribute(attribute); return answered(check(card)); }
EXPORT cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int card) { snprintf(id, (size_t)length, "0000:%02X:00.0", physical_card(card) + 1); return cudaSuccess; }
EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int card, int peer) { *can = card != peer; return cudaSuccess; }
EXPORT cudaError_t cudaDriverGetVersion(int *version) { *version = DRIVER_VERSION; return cudaSuccess; }
EXPORT cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
EXPORT cudaError_t cudaGetLastError(void) { cudaError_t error = last_error; last_error = cudaSuccess; return error; }
EXPORT cudaError_t cudaPeekAtLastError(void) { return last_error; }
EXPORT const char *cudaGetErrorName(cudaError_t error) { return error ? "cudaErrorOfThePretendedCard" : "cudaSuccess"; }
EXPORT const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory (pretended card)";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected (pretended card)";
    case cudaErrorInvalidDevice: return "invalid device ordinal (pretended card)";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing (pretended card)";
    default: return "an error of the pretended card";
  }
}

EXPORT CUresult cuInit(unsigned flags) { return visible_cards() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
EXPORT CUresult cuDriverGetVersion(int *version) { *version = DRIVER_VERSION; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int *cards) { *cards = visible_cards(); return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int card) { *device = card; return check(card) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) { snprintf(name, (size_t)length, "%s", CARD_NAME); return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) { *bytes = card_bytes(); return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) { *value = card_attribute((int)attribute); return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  struct cudaDeviceProp p;
  fill_properties(&p, device);
  memcpy(uuid, &p.uuid, sizeof *uuid);
  return CUDA_SUCCESS;
}

// A process has one context for each card, and a context is the number of its card plus one.
static CUcontext context_of(int card) { return (CUcontext)(uintptr_t)(card + 1); }
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { *context = context_of(device); return CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) { *flags = 0; *active = 1; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext *context) { *context = context_of(current); return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetCurrent(CUcontext context) { if (context) current = (int)(uintptr_t)context - 1; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxSetCurrent(context); }
EXPORT CUresult cuCtxPopCurrent(CUcontext *context) { return cuCtxGetCurrent(context); }
EXPORT CUresult cuCtxGetDevice(CUdevice *device) { *device = current; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSynchronize(void) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 1024; return CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorString(CUresult error, const char **text) { *text = error ? "an error of the pretended card" : "no error"; return CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorName(CUresult error, const char **text) { return cuGetErrorString(error, text); }

static void *function_named(const char *name) {
  char versioned[256];
  snprintf(versioned, sizeof versioned, "%s_v2", name);
  void *found = dlsym(RTLD_DEFAULT, versioned);
  return found ? found : dlsym(RTLD_DEFAULT, name);
}
EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
  *function = function_named(name);
  if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
  *function = function_named(name);
  if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// Kernels of compiled libraries: registered by the address of their host function when a library is loaded.

typedef struct { const void *host; const char *name; } Registered;
static Registered *registered;
static size_t registered_count, registered_room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static Registered *slot_of(Registered *table, size_t slots, const void *host) {
  size_t at = ((uintptr_t)host >> 4) * 0x9E3779B97F4A7C15ull % slots;
  while (table[at].host && table[at].host != host) at = (at + 1) % slots;
  return &table[at];
}

EXPORT void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name, int limit, uint3 *t, uint3 *b, dim3 *bd, dim3 *gd, int *w) {
  pthread_mutex_lock(&lock);
  if (2 * registered_count >= registered_room) {
    size_t larger = registered_room ? 2 * registered_room : 1 << 16;
    Registered *table = calloc(larger, sizeof *table);
    for (size_t i = 0; i < registered_room; i++)
      if (registered[i].host) *slot_of(table, larger, registered[i].host) = registered[i];
    free(registered);
    registered = table;
    registered_room = larger;
  }
  Registered *slot = slot_of(registered, registered_room, host);
  if (!slot->host) registered_count++;
  *slot = (Registered){host, name};
  pthread_mutex_unlock(&lock);
}

static const char *name_of(const void *host) {
  pthread_mutex_lock(&lock);
  const char *name = registered_room ? slot_of(registered, registered_room, host)->name : NULL;
  pthread_mutex_unlock(&lock);
  return name ? name : "unnamed";
}

static void *a_binary[8];
EXPORT void **__cudaRegisterFatBinary(void *binary) { return a_binary; }
EXPORT void __cudaRegisterFatBinaryEnd(void **binary) {}
EXPORT void __cudaUnregisterFatBinary(void **binary) {}
EXPORT void __cudaRegisterVar(void **binary, char *host, char *device, const char *name, int ext, size_t size, int constant, int global) {}
EXPORT char __cudaInitModule(void **binary) { return 1; }
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) { *kernel = (cudaKernel_t)host; return cudaSuccess; }

typedef struct { dim3 grid, block; size_t shared; cudaStream_t stream; } Configuration;
static _Thread_local Configuration pushed;
EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) { pushed = (Configuration){grid, block, shared, stream}; return 0; }
EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = pushed.grid; *block = pushed.block; *shared = pushed.shared; *(cudaStream_t *)stream = pushed.stream;
  return cudaSuccess;
}
EXPORT cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) { launch(name_of(host), stream); return cudaSuccess; }
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) { return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream); }
EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) { return cudaLaunchKernel(host, grid, block, arguments, shared, stream); }
EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *configuration, const void *host, void **arguments) { launch(name_of(host), configuration->stream); return cudaSuccess; }
EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *host) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024; attributes->numRegs = 32; attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads, size_t shared, unsigned flags) { *blocks = 2; return cudaSuccess; }
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t shared) { *blocks = 2; return cudaSuccess; }

// Kernels that are compiled in the process (Triton, inductor): a module hands out functions by name.

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) { *module = calloc(1, sizeof(void *)); return CUDA_SUCCESS; }
EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned number, CUjit_option *options, void **values) { return cuModuleLoadData(module, image); }
EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path) { return cuModuleLoadData(module, NULL); }
EXPORT CUresult cuModuleUnload(CUmodule module) { free(module); return CUDA_SUCCESS; }
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) { *function = (CUfunction)strdup(name); return CUDA_SUCCESS; }
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **arguments, void **extra) {
  launch((const char *)function, stream);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *configuration, CUfunction function, void **arguments, void **extra) { launch((const char *)function, configuration->hStream); return CUDA_SUCCESS; }
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **arguments) { launch((const char *)function, stream); return CUDA_SUCCESS; }
EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) { *blocks = 2; return CUDA_SUCCESS; }
EXPORT CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *configuration) { *clusters = 66; return CUDA_SUCCESS; }

// Versions and answers of cuBLAS and cuDNN that their callers look at.

EXPORT int cublasGetMathMode(void *handle, int *mode) { *mode = 0; return 0; }
EXPORT int cublasGetPointerMode_v2(void *handle, int *mode) { *mode = 0; return 0; }
EXPORT size_t cublasLtGetVersion(void) { return 130101; }
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } Heuristic;
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int wanted, Heuristic *results, int *found) {
  memset(results, 0, sizeof *results);
  *found = 1;
  return 0;
}
EXPORT size_t cudnnGetVersion(void) { return 92000; }
EXPORT size_t cudnnGetCudartVersion(void) { return 13000; }
EXPORT const char *cudnnGetErrorString(int status) { return "an error of the pretended cuDNN"; }

// What nvidia-smi's library says. A card's handle is its number plus one.

typedef struct { unsigned long long total, free, used; } NvmlMemory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } NvmlMemory2;
EXPORT int nvmlInit_v2(void) { return 0; }
EXPORT int nvmlInitWithFlags(unsigned flags) { return 0; }
EXPORT int nvmlShutdown(void) { return 0; }
// A card without a fabric: nothing is filled in, which means "not supported".
EXPORT int nvmlDeviceGetGpuFabricInfoV(void *handle, void *fabric) { return 0; }
EXPORT const char *nvmlErrorString(int error) { return error ? "Not Supported (pretended card)" : "Success"; }
EXPORT int nvmlDeviceGetCount_v2(unsigned *cards) { *cards = (unsigned)all_cards(); return 0; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned card, void **handle) { *handle = (void *)(uintptr_t)(card + 1); return card < (unsigned)all_cards() ? 0 : 2; }
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle) { unsigned bus = 1; sscanf(id, "%*x:%x", &bus); *handle = (void *)(uintptr_t)bus; return 0; }
EXPORT int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *number, void *processes) { *number = 0; return 0; }
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *number, void *processes) { *number = 0; return 0; }
EXPORT int nvmlDeviceGetIndex(void *handle, unsigned *card) { *card = (unsigned)(uintptr_t)handle - 1; return 0; }
EXPORT int nvmlDeviceGetName(void *handle, char *name, unsigned length) { snprintf(name, length, "%s", CARD_NAME); return 0; }
EXPORT int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) { snprintf(uuid, length, "GPU-01000000-0000-0000-0000-0000000000%02x", (unsigned)(uintptr_t)handle); return 0; }
EXPORT int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) { snprintf(version, length, DRIVER_NAME); return 0; }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = DRIVER_VERSION; return 0; }
EXPORT int nvmlDeviceGetMemoryInfo(void *handle, NvmlMemory *memory) {
  memory->total = card_bytes();
  memory->used = taken_bytes((int)(uintptr_t)handle - 1);
  memory->free = memory->total - memory->used;
  return 0;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *handle, NvmlMemory2 *memory) {
  NvmlMemory plain;
  nvmlDeviceGetMemoryInfo(handle, &plain);
  memory->total = plain.total; memory->used = plain.used; memory->free = plain.free; memory->reserved = 0;
  return 0;
}

// What was called.

typedef struct { const char *kind, *name; _Atomic long times; } Count;
static Count counts[1 << 15];
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

void count_call(const char *kind, const char *name) {
  size_t slots = sizeof counts / sizeof *counts, hash = 5381;
  for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
  pthread_mutex_lock(&counting);
  size_t at = hash % slots;
  while (counts[at].name && (counts[at].kind != kind || strcmp(counts[at].name, name))) at = (at + 1) % slots;
  counts[at].kind = kind;
  counts[at].name = name;
  counts[at].times++;
  pthread_mutex_unlock(&counting);
}

static FILE *calls_file(void) {
  const char *folder = getenv("PRETENDED_CARD_STATE");
  char path[4096];
  if (!folder) return NULL;
  snprintf(path, sizeof path, "%s/calls-%d.tsv", folder, getpid());
  return fopen(path, "a");
}

// Written at once, because the processes of a cluster end without a chance to write anything.
void record_call(const char *kind, const char *name) {
  FILE *file = calls_file();
  if (!file) return;
  fprintf(file, "%s\t1\t%s\n", kind, name);
  fclose(file);
}

__attribute__((destructor)) static void write_counts(void) {
  FILE *file = NULL;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    if (!counts[i].name) continue;
    if (!file && !(file = calls_file())) return;
    fprintf(file, "%s\t%ld\t%s\n", counts[i].kind, counts[i].times, counts[i].name);
  }
  if (file) fclose(file);
}
