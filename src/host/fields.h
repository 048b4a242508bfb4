/* SPDX-License-Identifier: MIT */
/*
 * Lines of "label number label number", as small files of ours have them. Whoever reads
 * one prints it again and compares: so that what is accepted has one spelling only.
 */
#ifndef PICKET_HOST_FIELDS_H
#define PICKET_HOST_FIELDS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Reads `label` and a decimal number at *at, and moves *at behind them. */
static inline bool pk_field_read(const char **at, const char *label, uint64_t *out)
{
    size_t len = strlen(label);
    if (strncmp(*at, label, len) != 0 || (*at)[len] < '0' || (*at)[len] > '9') {
        return false;
    }
    char *end;
    errno = 0;
    *out = strtoull(*at + len, &end, 10);
    *at = end;
    return errno == 0;
}

#endif
