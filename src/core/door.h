/* SPDX-License-Identifier: MIT */
/*
 * The two doors through which the core reaches the world outside.
 *
 * The core itself defines neither: whoever embeds it does (src/host/door.c for programs,
 * the simulator's glue for WebAssembly). Both doors hide failure: memory either comes or
 * the process stops. A replica that can't allocate must stop, because one that goes on
 * without an effect the others had would diverge from them.
 */
#ifndef PICKET_CORE_DOOR_H
#define PICKET_CORE_DOOR_H

#include <stddef.h>

/* Resizes `old` (NULL: a new block) to `size` bytes; size 0 frees and returns NULL.
 * Never returns NULL otherwise: running out of memory stops the process. */
void *pk_door_resize(void *old, size_t size);

/* Reports a broken invariant or an exhausted resource, and stops the process. */
_Noreturn void pk_door_stop(const char *file, int line, const char *why);

/* A bug in our own code, in release builds too: stopping beats answering wrongly. A page
 * has no room for the texts: there, file and line must do. */
#ifdef __wasm__
#define PK_ASSERT(x) ((x) ? (void)0 : pk_door_stop(__FILE_NAME__, __LINE__, ""))
#else
#define PK_ASSERT(x) ((x) ? (void)0 : pk_door_stop(__FILE__, __LINE__, #x))
#endif

#endif
