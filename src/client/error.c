/* SPDX-License-Identifier: MIT */
#include "client/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"

static _Thread_local char sentence[PK_SENTENCE_MAX];

enum picket_status pk_fail(enum picket_status s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return s;
}

enum picket_status pk_fail_plain(enum picket_status s)
{
    return pk_fail(s, "%s", picket_status_text(s));
}

void pk_sentence_save(char out[PK_SENTENCE_MAX])
{
    memcpy(out, sentence, sizeof sentence);
}

void pk_sentence_restore(const char saved[PK_SENTENCE_MAX])
{
    memcpy(sentence, saved, sizeof sentence);
}

const char *picket_last_error(void)
{
    return sentence;
}

const char *picket_status_name(enum picket_status s)
{
    static const char *const names[] = {
#define X(name, outcome, text) #name,
        PICKET_STATUSES(X)
#undef X
    };
    return (unsigned)s < PICKET_STATUS_COUNT ? names[s] : "?";
}

const char *picket_status_text(enum picket_status s)
{
    static const char *const texts[] = {
#define X(name, outcome, text) text,
        PICKET_STATUSES(X)
#undef X
    };
    return (unsigned)s < PICKET_STATUS_COUNT ? texts[s] : "not a status";
}

enum picket_outcome picket_outcome(enum picket_status s)
{
    enum {
        NOT_DONE = PICKET_NOT_DONE,
        DONE = PICKET_DONE,
        UNKNOWN = PICKET_OUTCOME_UNKNOWN
    };
    static const unsigned char outcomes[] = {
#define X(name, outcome, text) outcome,
        PICKET_STATUSES(X)
#undef X
    };
    return (unsigned)s < PICKET_STATUS_COUNT ? (enum picket_outcome)outcomes[s]
                                             : PICKET_OUTCOME_UNKNOWN;
}

const char *picket_version(void)
{
    return PICKET_VERSION;
}
