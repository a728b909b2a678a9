// Streams, events and graphs. A stream has finished what it was given before the call returns. While it is captured,
// copies and fillings are noted in a graph, and done at each launch of the graph; kernels are counted at its launches.
#include "card.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { enum { COPY, FILL, KERNEL } kind; void *to; const void *from; size_t width, count; int value; } Node;
struct CUgraph_st { Node *nodes; size_t count, room; };
struct CUgraphExec_st { Node *nodes; size_t count; };
// Captures are never freed: streams that took part in one may outlive it.
typedef struct { struct CUgraph_st *graph; unsigned long long id; bool is_active; } Capture;
struct CUstream_st { int card, priority; Capture *capture; };
struct CUevent_st { struct timespec time; Capture *capture; };

static _Atomic unsigned long long captures;
static _Thread_local struct CUstream_st default_stream;

static struct CUstream_st *stream_of(cudaStream_t stream) {
  return (uintptr_t)stream <= 2 ? &default_stream : stream;  // 0, cudaStreamLegacy and cudaStreamPerThread
}

static Capture *capture_of(cudaStream_t stream) {
  Capture *capture = stream_of(stream)->capture;
  return capture && capture->is_active ? capture : NULL;
}

static void note(struct CUgraph_st *graph, Node node) {
  if (graph->count == graph->room) graph->nodes = realloc(graph->nodes, (graph->room = graph->room ? 2 * graph->room : 64) * sizeof(Node));
  graph->nodes[graph->count++] = node;
}

static size_t largest_copy(void) {
  static size_t bytes;
  if (!bytes) {
    const char *set = getenv("PRETENDED_CARD_LARGEST_COPY_MIB");
    bytes = set ? (size_t)atol(set) << 20 : SIZE_MAX;
  }
  return bytes;
}

static void carry_out(const Node *node) {
  if (node->width * node->count > largest_copy()) return;  // so that a large model is never backed by memory
  if (node->kind == COPY) memmove(node->to, node->from, node->count);
  if (node->kind == FILL && node->width == 1) memset(node->to, node->value, node->count);
  if (node->kind == FILL && node->width == 4)
    for (size_t i = 0; i < node->count; i++) ((int *)node->to)[i] = node->value;
}

static void give(Node node, cudaStream_t stream) {
  Capture *capture = capture_of(stream);
  if (capture) note(capture->graph, node); else carry_out(&node);
}

void stream_copy(void *to, const void *from, size_t bytes, cudaStream_t stream) {
  give((Node){.kind = COPY, .to = to, .from = from, .width = 1, .count = bytes}, stream);
}

void stream_fill(void *to, int value, size_t width, size_t count, cudaStream_t stream) {
  give((Node){.kind = FILL, .to = to, .value = value, .width = width, .count = count}, stream);
}

void launch(const char *kernel, cudaStream_t stream) {
  Capture *capture = capture_of(stream);
  if (capture) note(capture->graph, (Node){.kind = KERNEL, .from = kernel}); else count_call("kernel", kernel);
}

static cudaError_t make_stream(cudaStream_t *stream, int priority) {
  *stream = calloc(1, sizeof **stream);
  (*stream)->card = current_card();
  (*stream)->priority = priority;
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) { return make_stream(stream, 0); }
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) { return make_stream(stream, 0); }
EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) { return make_stream(stream, priority); }
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) { if ((uintptr_t)stream > 2) free(stream); return cudaSuccess; }
EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaSuccess; }
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) { *priority = stream_of(stream)->priority; return cudaSuccess; }
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return cudaSuccess; }

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (capture_of(stream)) return cudaErrorStreamCaptureUnsupported;
  count_call("wait of the host", "cudaStreamSynchronize");
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceSynchronize(void) { count_call("wait of the host", "cudaDeviceSynchronize"); return cudaSuccess; }

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  if (!capture_of(stream)) function(data);
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned flags) {
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}

// Events.

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { *event = calloc(1, sizeof **event); return cudaSuccess; }
EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }
EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  clock_gettime(CLOCK_MONOTONIC, &event->time);
  event->capture = capture_of(stream);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }
EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaSuccess; }
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) { count_call("wait of the host", "cudaEventSynchronize"); return cudaSuccess; }
EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = (float)(1e3 * (double)(end->time.tv_sec - start->time.tv_sec) + 1e-6 * (double)(end->time.tv_nsec - start->time.tv_nsec));
  return cudaSuccess;
}
// A stream that waits for an event of a captured stream is captured with it.
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (event->capture && event->capture->is_active) stream_of(stream)->capture = event->capture;
  return cudaSuccess;
}

// Graphs.

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  if (capture_of(stream)) return cudaErrorIllegalState;
  Capture *capture = malloc(sizeof *capture);
  *capture = (Capture){.graph = calloc(1, sizeof(struct CUgraph_st)), .id = ++captures, .is_active = true};
  stream_of(stream)->capture = capture;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  Capture *capture = capture_of(stream);
  if (!capture) return cudaErrorIllegalState;
  capture->is_active = false;
  *graph = capture->graph;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = capture_of(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
                                            const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges, size_t *number) {
  Capture *capture = capture_of(stream);
  *status = capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = capture ? capture->graph : NULL;
  if (dependencies) *dependencies = NULL;
  if (edges) *edges = NULL;
  if (number) *number = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return cudaSuccess; }
EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
  *executable = calloc(1, sizeof **executable);
  (*executable)->nodes = malloc(graph->count * sizeof(Node) + 1);
  (*executable)->count = graph->count;
  memcpy((*executable)->nodes, graph->nodes, graph->count * sizeof(Node));
  count_call("graph", "captured");
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  count_call("graph", "launched");
  for (size_t i = 0; i < executable->count; i++) {
    const Node *node = &executable->nodes[i];
    if (node->kind == KERNEL) count_call("kernel in a graph", node->from); else carry_out(node);
  }
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *number) {
  if (nodes) for (size_t i = 0; i < *number && i < graph->count; i++) nodes[i] = (cudaGraphNode_t)&graph->nodes[i];
  *number = graph->count;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) { free(graph->nodes); free(graph); return cudaSuccess; }
EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { free(executable->nodes); free(executable); return cudaSuccess; }
