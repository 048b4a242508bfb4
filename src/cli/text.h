/* SPDX-License-Identifier: MIT */
/*
 * UTF-8, one character at a time. core/utf8.h says whether a whole name is fit to print;
 * output needs to know of each character what to do with it.
 */
#ifndef PICKET_CLI_TEXT_H
#define PICKET_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the character at `at`. Returns its length in bytes, or 0 when there is none: not
 * well-formed, or cut off. */
size_t pk_text_decode(const char *at, size_t len, uint32_t *code);

/* C0, DEL and C1: what a terminal might obey instead of print. */
bool pk_text_is_control(uint32_t code);

bool pk_text_is_utf8(const char *text, size_t len);

/* How many characters there are; a byte that is not part of one counts as one. */
size_t pk_text_count(const char *text);

#endif
