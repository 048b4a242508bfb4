/* SPDX-License-Identifier: MIT */
#include "client/findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/door.h"

void pk_findings_add(struct pk_findings *f, enum pk_grade grade, const char *code,
                     const char *format, ...)
{
    f->list = pk_door_resize(f->list, (f->count + 1) * sizeof f->list[0]);
    struct pk_finding *x = &f->list[f->count++];
    x->grade = grade;
    (void)snprintf(x->code, sizeof x->code, "%s", code);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(x->text, sizeof x->text, format, args);
    va_end(args);
}

void pk_findings_free(struct pk_findings *f)
{
    (void)pk_door_resize(f->list, 0);
    *f = (struct pk_findings){0};
}
