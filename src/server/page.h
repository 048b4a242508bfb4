/* SPDX-License-Identifier: MIT */
/* A page that is part of the program (web/embed.py writes them). */
#ifndef PICKET_SERVER_PAGE_H
#define PICKET_SERVER_PAGE_H

#include <stddef.h>

struct pk_page {
    const unsigned char *plain;
    size_t plain_len;
    const unsigned char *packed; /* the same by gzip */
    size_t packed_len;
    const char *tag;    /* ETag: changes with the bytes */
    const char *policy; /* Content-Security-Policy */
};

extern const struct pk_page pk_page_dashboard;
#ifdef PICKET_WITH_SIMULATOR
extern const struct pk_page pk_page_simulator;
#endif

#endif
