/* SPDX-License-Identifier: MIT */
#include "core/status.h"

#include "core/door.h"

const char *pk_status_name(enum pk_status s)
{
    static const char *const names[] = {
#define X(name, text) #name,
        PK_STATUSES(X)
#undef X
    };
    PK_ASSERT(s < PK_STATUS_COUNT);
    return names[s];
}

const char *pk_status_text(enum pk_status s)
{
    static const char *const texts[] = {
#define X(name, text) text,
        PK_STATUSES(X)
#undef X
    };
    PK_ASSERT(s < PK_STATUS_COUNT);
    return texts[s];
}

const char *pk_end_name(enum pk_end e)
{
    static const char *const names[] = {"none",      "released", "closed",   "expired",
                                        "overheld",  "broken",   "restored", "withdrawn",
                                        "timed-out", "forgotten"};
    PK_ASSERT(e < PK_END_COUNT);
    return names[e];
}

const char *pk_end_text(enum pk_end e)
{
    static const char *const texts[] = {
#define X(name, text) text,
        PK_ENDS(X)
#undef X
    };
    PK_ASSERT(e < PK_END_COUNT);
    return texts[e];
}
