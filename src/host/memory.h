/* SPDX-License-Identifier: MIT */
/*
 * Memory for programs: what core/door.h says, for texts. None of these returns NULL:
 * without memory the process stops, with one line on standard error.
 */
#ifndef PICKET_HOST_MEMORY_H
#define PICKET_HOST_MEMORY_H

#include <stddef.h>

/* Copies and prints to a new block, for free(). */
char *pk_memory_copy(const char *text);
char *pk_memory_copy_n(const char *data, size_t len); /* with a NUL behind it */
__attribute__((format(printf, 1, 2))) char *pk_memory_print(const char *format, ...);

/* Stops the process because there is no memory. In a program that has called
 * pk_memory_exit_code() it exits with that code, in others it aborts. */
_Noreturn void pk_memory_out(void);
/* For what another library hands out: NULL means that it found no memory. */
void pk_memory_need(const void *p);
void pk_memory_exit_code(int code);

#endif
