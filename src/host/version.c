/* SPDX-License-Identifier: MIT */
#include "host/version.h"

#include <stdio.h>

#include "core/version.h"

enum { SENTENCE_MAX = 5120 }; /* a path and some words */

static _Thread_local char sentence[SENTENCE_MAX];

const char *pk_version_needed(const char *what, uint32_t version)
{
    (void)snprintf(sentence, sizeof sentence,
                   "%s needs cluster version %u; this build runs %d to %d; install %s "
                   "picket",
                   what, version, PK_VERSION_OLDEST, PK_VERSION_NEWEST,
                   version < PK_VERSION_OLDEST ? "an older" : "a newer");
    return sentence;
}

const char *pk_format_needed(const char *what, uint32_t format, uint32_t known)
{
    (void)snprintf(sentence, sizeof sentence,
                   "%s has format version %u; this build reads %u; install %s picket",
                   what, format, known, format < known ? "an older" : "a newer");
    return sentence;
}

const char *pk_version_range(uint32_t oldest, uint32_t newest)
{
    (void)snprintf(sentence, sizeof sentence,
                   oldest == newest ? "cluster version %u" : "cluster versions %u to %u",
                   oldest, newest);
    return sentence;
}
