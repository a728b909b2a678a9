// NCCL between processes of one machine: its collectives as sums and copies over shared memory.
#include "card.h"
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

void launch(const char *kernel, cudaStream_t stream);

#define SLOT ((size_t)1 << 20)      // bytes that a rank shows to the others at once
#define MAILBOX ((size_t)1 << 18)   // bytes that are on their way from one rank to another
#define MOST_FACTORS 64

typedef struct { _Atomic size_t written, read; } Mailbox;
typedef struct { _Atomic int arrived, round, is_aborted; Mailbox mailboxes[MOST_CARDS][MOST_CARDS]; } Meeting;
struct ncclComm { int rank, size, card, splits; Meeting *meeting; char *slots, *mail, name[64]; double factors[MOST_FACTORS]; int number_of_factors; };

static size_t shared_bytes(int size) { return sizeof(Meeting) + (size_t)size * SLOT + (size_t)(size * size) * MAILBOX; }
static char *slot(ncclComm_t comm, int rank) { return comm->slots + (size_t)rank * SLOT; }

static ncclResult_t meet(ncclComm_t comm) {
  Meeting *meeting = comm->meeting;
  int round = meeting->round;
  if (++meeting->arrived == comm->size) {
    meeting->arrived = 0;
    meeting->round = round + 1;
    return ncclSuccess;
  }
  for (int turns = 0; meeting->round == round; turns++) {
    if (meeting->is_aborted) return ncclRemoteError;
    if (turns < 1000) sched_yield(); else usleep(100);
  }
  return ncclSuccess;
}

static ncclResult_t join(ncclComm_t *joined, int rank, int size, const char *name) {
  if (size > MOST_CARDS) return ncclInvalidArgument;
  ncclComm_t comm = calloc(1, sizeof *comm);
  comm->rank = rank; comm->size = size; comm->card = current_card();
  snprintf(comm->name, sizeof comm->name, "%s", name);
  int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, (off_t)shared_bytes(size))) return ncclSystemError;
  comm->meeting = mmap(NULL, shared_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (comm->meeting == MAP_FAILED) return ncclSystemError;
  comm->slots = (char *)(comm->meeting + 1);
  comm->mail = comm->slots + (size_t)size * SLOT;
  ncclResult_t result = meet(comm);
  if (rank == 0) shm_unlink(name);
  if (size > 1) record_call("communicator", "of several ranks");
  *joined = comm;
  return result;
}

// Numbers.

static size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: case ncclUint8: case ncclFloat8e4m3: case ncclFloat8e5m2: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    default: return 8;
  }
}

static double read_number(const char *at, ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return *(int8_t *)at;
    case ncclUint8: return *(uint8_t *)at;
    case ncclInt32: return *(int32_t *)at;
    case ncclUint32: return *(uint32_t *)at;
    case ncclInt64: return (double)*(int64_t *)at;
    case ncclUint64: return (double)*(uint64_t *)at;
    case ncclFloat16: return *(_Float16 *)at;
    case ncclFloat32: return *(float *)at;
    case ncclFloat64: return *(double *)at;
    case ncclBfloat16: { uint32_t bits = (uint32_t)*(uint16_t *)at << 16; float value; memcpy(&value, &bits, 4); return value; }
    default: fprintf(stderr, "pretended card: NCCL adds up no numbers of 8 bits\n"); abort();
  }
}

static void write_number(char *at, ncclDataType_t type, double value) {
  switch (type) {
    case ncclInt8: *(int8_t *)at = (int8_t)value; break;
    case ncclUint8: *(uint8_t *)at = (uint8_t)value; break;
    case ncclInt32: *(int32_t *)at = (int32_t)value; break;
    case ncclUint32: *(uint32_t *)at = (uint32_t)value; break;
    case ncclInt64: *(int64_t *)at = (int64_t)value; break;
    case ncclUint64: *(uint64_t *)at = (uint64_t)value; break;
    case ncclFloat16: *(_Float16 *)at = (_Float16)value; break;
    case ncclFloat32: *(float *)at = (float)value; break;
    case ncclFloat64: *(double *)at = value; break;
    default: {  // bfloat16, rounded to the nearest, ties to even
      float number = (float)value;
      uint32_t bits;
      memcpy(&bits, &number, 4);
      *(uint16_t *)at = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
  }
}

static double combined(double a, double b, ncclRedOp_t operation) {
  switch (operation) {
    case ncclProd: return a * b;
    case ncclMax: return a > b ? a : b;
    case ncclMin: return a < b ? a : b;
    default: return a + b;
  }
}

// Combines the numbers at one place of every rank's slot.
static void combine(ncclComm_t comm, size_t place, char *to, size_t numbers, ncclDataType_t type, ncclRedOp_t operation) {
  size_t width = bytes_of(type);
  double factor = operation == ncclAvg ? 1.0 / comm->size : operation >= ncclNumOps ? comm->factors[operation - ncclNumOps] : 1.0;
  for (size_t i = 0; i < numbers; i++) {
    double value = read_number(slot(comm, 0) + place + i * width, type);
    for (int rank = 1; rank < comm->size; rank++) value = combined(value, read_number(slot(comm, rank) + place + i * width, type), operation);
    write_number(to + i * width, type, value * factor);
  }
}

// Collectives. A stream that is captured only notes that there is one.

static bool is_captured(const char *name, cudaStream_t stream) {
  enum cudaStreamCaptureStatus status;
  cudaStreamIsCapturing(stream, &status);
  launch(name, stream);
  return status == cudaStreamCaptureStatusActive;
}

#define MEET(comm) do { ncclResult_t met = meet(comm); if (met) return met; } while (0)
#define CHUNKS(offset, part, whole, most) for (size_t offset = 0, part; offset < (whole) && (part = (whole) - offset < (most) ? (whole) - offset : (most)); offset += part)

static ncclResult_t all_reduce(const char *from, char *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm) {
  size_t width = bytes_of(type);
  CHUNKS(offset, part, count, SLOT / width) {
    memcpy(slot(comm, comm->rank), from + offset * width, part * width);
    MEET(comm);
    if (to) combine(comm, 0, to + offset * width, part, type, operation);
    MEET(comm);
  }
  return ncclSuccess;
}

// Each rank's part for each other rank, side by side in its slot.
static ncclResult_t scatter(const char *from, char *to, size_t count, ncclDataType_t type, bool is_sum, ncclRedOp_t operation, ncclComm_t comm) {
  size_t width = bytes_of(type), most = SLOT / width / (size_t)comm->size;
  CHUNKS(offset, part, count, most) {
    for (int rank = 0; rank < comm->size; rank++)
      memcpy(slot(comm, comm->rank) + (size_t)rank * most * width, from + ((size_t)rank * count + offset) * width, part * width);
    MEET(comm);
    size_t own = (size_t)comm->rank * most * width;
    if (is_sum) combine(comm, own, to + offset * width, part, type, operation);
    else for (int rank = 0; rank < comm->size; rank++) memcpy(to + ((size_t)rank * count + offset) * width, slot(comm, rank) + own, part * width);
    MEET(comm);
  }
  return ncclSuccess;
}

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return is_captured("ncclAllReduce", stream) ? ncclSuccess : all_reduce(from, to, count, type, operation, comm);
}
EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
  return is_captured("ncclReduce", stream) ? ncclSuccess : all_reduce(from, comm->rank == root ? to : NULL, count, type, operation, comm);
}
EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return is_captured("ncclReduceScatter", stream) ? ncclSuccess : scatter(from, to, count, type, true, operation, comm);
}
EXPORT ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return is_captured("ncclAlltoAll", stream) ? ncclSuccess : scatter(from, to, count, type, false, ncclSum, comm);
}
EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  if (is_captured("ncclAllGather", stream)) return ncclSuccess;
  size_t bytes = count * bytes_of(type);
  CHUNKS(offset, part, bytes, SLOT) {
    memcpy(slot(comm, comm->rank), (const char *)from + offset, part);
    MEET(comm);
    for (int rank = 0; rank < comm->size; rank++) memcpy((char *)to + (size_t)rank * bytes + offset, slot(comm, rank), part);
    MEET(comm);
  }
  return ncclSuccess;
}
EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  if (is_captured("ncclBroadcast", stream)) return ncclSuccess;
  size_t bytes = count * bytes_of(type);
  CHUNKS(offset, part, bytes, SLOT) {
    if (comm->rank == root) memcpy(slot(comm, root), (const char *)from + offset, part);
    MEET(comm);
    memcpy((char *)to + offset, slot(comm, root), part);
    MEET(comm);
  }
  return ncclSuccess;
}
EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

// Messages from one rank to another. Those of a group are on their way together.

typedef struct { bool is_sending; char *buffer; size_t bytes, done; int peer; ncclComm_t comm; } Message;
static _Thread_local Message *messages;
static _Thread_local size_t message_count, message_room;
static _Thread_local int depth;

static void advance(Message *message) {
  ncclComm_t comm = message->comm;
  int from = message->is_sending ? comm->rank : message->peer, to = message->is_sending ? message->peer : comm->rank;
  Mailbox *box = &comm->meeting->mailboxes[from][to];
  char *mail = comm->mail + (size_t)(from * comm->size + to) * MAILBOX;
  size_t written = box->written, read = box->read;
  size_t at = message->is_sending ? written % MAILBOX : read % MAILBOX;
  size_t possible = message->is_sending ? MAILBOX - (written - read) : written - read;
  size_t part = message->bytes - message->done;
  if (part > possible) part = possible;
  if (part > MAILBOX - at) part = MAILBOX - at;
  if (message->is_sending) { memcpy(mail + at, message->buffer + message->done, part); box->written += part; }
  else { memcpy(message->buffer + message->done, mail + at, part); box->read += part; }
  message->done += part;
}

EXPORT ncclResult_t ncclGroupStart(void) { depth++; return ncclSuccess; }
EXPORT ncclResult_t ncclGroupEnd(void) {
  if (--depth > 0) return ncclSuccess;
  for (bool is_done = false; !is_done; sched_yield()) {
    is_done = true;
    for (size_t i = 0; i < message_count; i++) {
      if (messages[i].comm->meeting->is_aborted) return ncclRemoteError;
      bool is_first = true;  // messages between two ranks keep their order
      for (size_t j = 0; j < i; j++)
        is_first &= messages[j].done == messages[j].bytes || messages[j].comm != messages[i].comm || messages[j].peer != messages[i].peer || messages[j].is_sending != messages[i].is_sending;
      if (is_first) advance(&messages[i]);
      is_done &= messages[i].done == messages[i].bytes;
    }
  }
  message_count = 0;
  return ncclSuccess;
}

static ncclResult_t message(bool is_sending, void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (is_captured(is_sending ? "ncclSend" : "ncclRecv", stream)) return ncclSuccess;
  ncclGroupStart();
  if (message_count == message_room) messages = realloc(messages, (message_room = message_room ? 2 * message_room : 16) * sizeof(Message));
  messages[message_count++] = (Message){is_sending, buffer, count * bytes_of(type), 0, peer, comm};
  return ncclGroupEnd();
}
EXPORT ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) { return message(true, (void *)buffer, count, type, peer, comm, stream); }
EXPORT ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) { return message(false, buffer, count, type, peer, comm, stream); }

// Communicators.

EXPORT ncclResult_t ncclGetVersion(int *version) { *version = NCCL_VERSION_CODE; return ncclSuccess; }
EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  unsigned long long bits[2];
  if (getrandom(bits, sizeof bits, 0) != sizeof bits) return ncclSystemError;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/pretended-nccl-%016llx%016llx", bits[0], bits[1]);
  return ncclSuccess;
}
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) { return join(comm, rank, size, id.internal); }
EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) { return join(comm, rank, size, id.internal); }
EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int size, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config) { return join(comm, rank, size, id->internal); }
EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *part, ncclConfig_t *config) {
  int own[2] = {color, key}, all[MOST_CARDS][2], rank = 0, size = 0;
  ncclResult_t result = ncclAllGather(own, all, 2, ncclInt32, comm, 0);
  if (result) return result;
  char name[64];
  snprintf(name, sizeof name, "%.40s-%d-%d", comm->name, ++comm->splits, color);
  *part = NULL;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  for (int other = 0; other < comm->size; other++) {
    if (all[other][0] != color) continue;
    size++;
    rank += all[other][1] < key || (all[other][1] == key && other < comm->rank);
  }
  return join(part, rank, size, name);
}
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) { munmap(comm->meeting, shared_bytes(comm->size)); free(comm); return ncclSuccess; }
EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) { return ncclSuccess; }
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) { comm->meeting->is_aborted = 1; return ncclSuccess; }
EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) { *error = comm->meeting->is_aborted ? ncclRemoteError : ncclSuccess; return ncclSuccess; }
EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) { *count = comm->size; return ncclSuccess; }
EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) { *rank = comm->rank; return ncclSuccess; }
EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *card) { *card = comm->card; return ncclSuccess; }
EXPORT const char *ncclGetErrorString(ncclResult_t error) { return error ? "an error of the pretended NCCL" : "no error"; }
EXPORT const char *ncclGetLastError(ncclComm_t comm) { return "an error of the pretended NCCL"; }
EXPORT ncclResult_t ncclMemAlloc(void **pointer, size_t bytes) { return cudaMalloc(pointer, bytes) ? ncclSystemError : ncclSuccess; }
EXPORT ncclResult_t ncclMemFree(void *pointer) { return cudaFree(pointer) ? ncclInvalidArgument : ncclSuccess; }
EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *operation, void *factor, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t comm) {
  int at = comm->number_of_factors++ % MOST_FACTORS;
  comm->factors[at] = read_number(factor, type);
  *operation = (ncclRedOp_t)(ncclNumOps + at);
  return ncclSuccess;
}
EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t comm) { return ncclSuccess; }
