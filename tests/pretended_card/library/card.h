// The pretended card: CUDA's libraries without a GPU. Device memory is host memory, streams finish at once, and kernels
// are counted instead of being executed.
#pragma once
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_CARDS 8

// What a process takes of a card beside its allocations, for its context; about what an H100's driver takes.
#define CONTEXT_BYTES ((size_t)512 << 20)

typedef enum { NOWHERE, ON_CARD, PINNED } Place;

// The card that a thread computes on, as a number among the visible ones, and the number of visible cards.
int current_card(void);
int visible_cards(void);
// The number of a visible card among all cards of the machine.
int physical_card(int visible);

size_t card_bytes(void);
int card_attribute(int attribute);
void fill_properties(struct cudaDeviceProp *properties, int card);

// Where an address lies, and the start, size and card of its allocation.
Place place_of(const void *address, void **start, size_t *bytes, int *card);
// Memory taken from a card by all processes that are alive.
size_t taken_bytes(int visible);

// A copy or a filling in the order of a stream: done at once, or noted if the stream is being captured.
void stream_copy(void *to, const void *from, size_t bytes, cudaStream_t stream);
void stream_fill(void *to, int value, size_t width, size_t count, cudaStream_t stream);

// Counts a call of a kernel or of a function that only answers that it has succeeded.
void count_call(const char *kind, const char *name);
void record_call(const char *kind, const char *name);
