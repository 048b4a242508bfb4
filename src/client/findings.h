/* SPDX-License-Identifier: MIT */
/* What `picket doctor` is told about a store: one finding for each thing looked at. */
#ifndef PICKET_CLIENT_FINDINGS_H
#define PICKET_CLIENT_FINDINGS_H

#include <stddef.h>

enum pk_grade {
    PK_FINE,   /* looked at, and as it should be */
    PK_NOTE,   /* worth knowing, not dangerous */
    PK_UNSAFE, /* two holders, a lost lock or a token that goes back are possible */
};

struct pk_finding {
    enum pk_grade grade;
    char code[32];  /* stable, for scripts: "no-aof" */
    char text[400]; /* one sentence: what was found, and what to do about it */
};

/* A zeroed struct is an empty list. */
struct pk_findings {
    struct pk_finding *list;
    size_t count;
};

__attribute__((format(printf, 4, 5))) void pk_findings_add(struct pk_findings *f,
                                                           enum pk_grade grade,
                                                           const char *code,
                                                           const char *format, ...);
void pk_findings_free(struct pk_findings *f);

#endif
