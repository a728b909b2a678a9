// Memory of the pretended card: what is allocated is reserved, and backed by the machine only once it is written.
#include "card.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE ((size_t)2 << 20)
#define MOST_PROCESSES 64

// A byte that fills memory which is mapped again where it was unmapped: what a card holds there is undefined.
#define UNDEFINED_BYTE 0xCB

typedef struct { uintptr_t start; size_t bytes; Place place; int card; bool is_virtual; } Allocation;
typedef struct { size_t bytes; int card; } Physical;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Allocation *allocations;
static size_t count, room;

// What each process has taken of each card, in a file that all of them map.
typedef struct { _Atomic int process; _Atomic long bytes[MOST_CARDS]; } Share;

static Share *all_shares(void) {
  static Share *shares;
  static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&opening);
  if (!shares) {
    char path[4096];
    const char *folder = getenv("PRETENDED_CARD_STATE");
    snprintf(path, sizeof path, "%s/memory", folder ? folder : "/tmp");
    int file = folder ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    size_t bytes = MOST_PROCESSES * sizeof(Share);
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
      shares = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!shares || shares == MAP_FAILED) shares = calloc(MOST_PROCESSES, sizeof(Share));
    if (file >= 0) close(file);
  }
  pthread_mutex_unlock(&opening);
  return shares;
}

static bool is_alive(int process) { return process && (kill(process, 0) == 0 || errno == EPERM); }

static Share *own_share(void) {
  static _Thread_local Share *own;
  int process = getpid();
  if (own && own->process == process) return own;
  Share *shares = all_shares();
  for (int i = 0; i < MOST_PROCESSES; i++)
    if (shares[i].process == process) return own = &shares[i];
  for (int i = 0; i < MOST_PROCESSES; i++) {
    int owner = shares[i].process;
    if (is_alive(owner)) continue;
    if (!atomic_compare_exchange_strong(&shares[i].process, &owner, process)) continue;
    for (int card = 0; card < MOST_CARDS; card++) shares[i].bytes[card] = 0;
    return own = &shares[i];
  }
  fprintf(stderr, "pretended card: more than %d processes use it\n", MOST_PROCESSES);
  abort();
}

size_t taken_bytes(int visible) {
  Share *shares = all_shares();
  size_t taken = 0;
  for (int i = 0; i < MOST_PROCESSES; i++)
    if (is_alive(shares[i].process)) taken += (size_t)shares[i].bytes[physical_card(visible)];
  return taken;
}

static bool take(int card, size_t bytes) {
  Share *own = own_share();
  _Atomic long *taken = &own->bytes[physical_card(card)];
  size_t context = *taken == 0 ? CONTEXT_BYTES : 0;
  if (taken_bytes(card) + context + bytes > card_bytes()) return false;
  *taken += (long)(bytes + context);
  return true;
}

static void give_back(int card, size_t bytes) { own_share()->bytes[physical_card(card)] -= (long)bytes; }

static size_t index_of(uintptr_t address) {  // of the first allocation that starts after it
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (allocations[middle].start <= address) low = middle + 1; else high = middle;
  }
  return low;
}

static void remember(void *start, size_t bytes, Place place, int card, bool is_virtual) {
  pthread_mutex_lock(&lock);
  if (count == room) allocations = realloc(allocations, (room = room ? 2 * room : 1024) * sizeof(Allocation));
  size_t at = index_of((uintptr_t)start);
  memmove(allocations + at + 1, allocations + at, (count++ - at) * sizeof(Allocation));
  allocations[at] = (Allocation){(uintptr_t)start, bytes, place, card, is_virtual};
  pthread_mutex_unlock(&lock);
}

static bool forget(void *start, Allocation *forgotten) {
  pthread_mutex_lock(&lock);
  size_t at = index_of((uintptr_t)start);
  bool found = at && allocations[at - 1].start == (uintptr_t)start;
  if (found) {
    *forgotten = allocations[at - 1];
    memmove(allocations + at - 1, allocations + at, (count-- - at) * sizeof(Allocation));
  }
  pthread_mutex_unlock(&lock);
  return found;
}

Place place_of(const void *address, void **start, size_t *bytes, int *card) {
  Place place = NOWHERE;
  pthread_mutex_lock(&lock);
  size_t at = index_of((uintptr_t)address);
  if (at && (uintptr_t)address < allocations[at - 1].start + allocations[at - 1].bytes) {
    Allocation *found = &allocations[at - 1];
    place = found->place;
    if (start) *start = (void *)found->start;
    if (bytes) *bytes = found->bytes;
    if (card) *card = found->card;
  }
  pthread_mutex_unlock(&lock);
  return place;
}

static void *reserve(size_t bytes, int protection) {
  char *base = mmap(NULL, bytes + PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return NULL;
  char *start = (char *)(((uintptr_t)base + PAGE - 1) & ~(PAGE - 1));
  if (start > base) munmap(base, (size_t)(start - base));
  size_t behind = (size_t)(base + PAGE - start);
  if (behind) munmap(start + bytes, behind);
  return start;
}

static size_t whole_pages(size_t bytes, size_t page) { return (bytes + page - 1) / page * page; }

static cudaError_t allocate(void **pointer, size_t bytes, Place place) {
  size_t whole = whole_pages(bytes ? bytes : 1, place == ON_CARD ? PAGE : 4096);
  int card = current_card();
  if (place == ON_CARD && !take(card, whole)) return cudaErrorMemoryAllocation;
  void *start = reserve(whole, PROT_READ | PROT_WRITE);
  if (!start) return cudaErrorMemoryAllocation;
  remember(start, whole, place, card, false);
  *pointer = start;
  return cudaSuccess;
}

static cudaError_t release(void *pointer) {
  Allocation freed;
  if (!pointer) return cudaSuccess;
  if (!forget(pointer, &freed)) return cudaErrorInvalidValue;
  if (freed.place == ON_CARD) give_back(freed.card, freed.bytes);
  munmap((void *)freed.start, freed.bytes);
  return cudaSuccess;
}

EXPORT cudaError_t cudaMalloc(void **pointer, size_t bytes) { return allocate(pointer, bytes, ON_CARD); }
EXPORT cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) { return cudaMalloc(pointer, bytes); }
EXPORT cudaError_t cudaFree(void *pointer) { return release(pointer); }
EXPORT cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) { return release(pointer); }
EXPORT cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) { return allocate(pointer, bytes, PINNED); }
EXPORT cudaError_t cudaFreeHost(void *pointer) { return release(pointer); }
EXPORT cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) { *device = host; return cudaSuccess; }

EXPORT cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
  remember(pointer, bytes, PINNED, current_card(), true);
  return cudaSuccess;
}

EXPORT cudaError_t cudaHostUnregister(void *pointer) {
  Allocation freed;
  if (!forget(pointer, &freed)) return cudaErrorHostMemoryNotRegistered;
  return cudaSuccess;
}

EXPORT cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  size_t taken = taken_bytes(current_card());
  *total = card_bytes();
  *free = taken < *total ? *total - taken : 0;
  return cudaSuccess;
}
EXPORT CUresult cuMemGetInfo(size_t *free, size_t *total) { return (CUresult)cudaMemGetInfo(free, total); }

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
  int card = 0;
  memset(attributes, 0, sizeof *attributes);
  Place place = place_of(pointer, NULL, NULL, &card);
  attributes->type = place == ON_CARD ? cudaMemoryTypeDevice : place == PINNED ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  attributes->device = card;
  attributes->devicePointer = place == NOWHERE ? NULL : (void *)pointer;
  attributes->hostPointer = place == PINNED ? (void *)pointer : NULL;
  return cudaSuccess;
}

EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  void *start = NULL;
  size_t bytes = 0;
  int card = 0;
  Place place = place_of((void *)pointer, &start, &bytes, &card);
  if (place == NOWHERE) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = place == ON_CARD ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = card; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = pointer; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = (CUdeviceptr)start; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = bytes; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *start, size_t *bytes, CUdeviceptr pointer) {
  return place_of((void *)pointer, (void **)start, bytes, NULL) == NOWHERE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Virtual memory: an address range is reserved, physical memory is a number of bytes, and unmapping loses the content.

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option) {
  *bytes = PAGE;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address, unsigned long long flags) {
  void *start = reserve(bytes, PROT_NONE);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  remember(start, bytes, ON_CARD, current_card(), true);
  *pointer = (CUdeviceptr)start;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  Allocation freed;
  if (!forget((void *)pointer, &freed)) return CUDA_ERROR_INVALID_VALUE;
  munmap((void *)pointer, bytes);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags) {
  int card = properties->location.id;
  if (!take(card, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Physical *physical = malloc(sizeof *physical);
  *physical = (Physical){bytes, card};
  *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Physical *physical = (Physical *)(uintptr_t)handle;
  give_back(physical->card, physical->bytes);
  free(physical);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return CUDA_SUCCESS;
}

// Pages that were unmapped carry a mark: they are readable again only through cuMemSetAccess, which fills them.
typedef struct { uintptr_t start; size_t bytes; } Unmapped;
static Unmapped *unmapped;
static size_t unmapped_count, unmapped_room;

EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  madvise((void *)pointer, bytes, MADV_DONTNEED);
  mprotect((void *)pointer, bytes, PROT_NONE);
  pthread_mutex_lock(&lock);
  if (unmapped_count == unmapped_room)
    unmapped = realloc(unmapped, (unmapped_room = unmapped_room ? 2 * unmapped_room : 64) * sizeof(Unmapped));
  unmapped[unmapped_count++] = (Unmapped){(uintptr_t)pointer, bytes};
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *description, size_t descriptions) {
  if (mprotect((void *)pointer, bytes, PROT_READ | PROT_WRITE)) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < unmapped_count; i++) {
    if (unmapped[i].start != (uintptr_t)pointer || unmapped[i].bytes != bytes) continue;
    if (getenv("PRETENDED_CARD_UNDEFINED")) memset((void *)pointer, UNDEFINED_BYTE, bytes);
    unmapped[i] = unmapped[--unmapped_count];
    break;
  }
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer) { return cudaErrorNotSupported; }
EXPORT cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags) { return cudaErrorNotSupported; }

// Copies.

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  stream_copy(to, from, bytes, stream);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) { return cudaMemcpyAsync(to, from, bytes, kind, 0); }
EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_card, const void *from, int from_card, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
  for (size_t row = 0; row < height; row++)
    stream_copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, stream);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  stream_fill(to, value, 1, bytes, stream);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, 0); }
EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t numbers, CUstream stream) {
  stream_fill((void *)to, (int)value, 4, numbers, stream);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  stream_copy((void *)to, (void *)from, bytes, stream);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) { return cuMemcpyAsync((CUdeviceptr)to, from, bytes, stream); }
EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) { return cuMemcpyAsync(to, (CUdeviceptr)from, bytes, stream); }
EXPORT CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned flags) {
  stream_fill((void *)to, (int)value, 4, 1, stream);
  return CUDA_SUCCESS;
}
EXPORT cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) { *pointer = (void *)symbol; return cudaSuccess; }
EXPORT cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) { return cudaSuccess; }
