/* SPDX-License-Identifier: MIT */
/*
 * The cluster version: one number, part of the replicated state, that says which rules
 * every replica runs, which verbs and fields exist, and how entries and snapshots are
 * written. A build runs several of them; a rule that changes asks the machine's version
 * (rules N1 to N4 of README.md). docs/upgrades.md has the policy.
 */
#ifndef PICKET_CORE_VERSION_H
#define PICKET_CORE_VERSION_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PK_VERSION_OLDEST = 1, /* this build runs cluster versions from here */
    PK_VERSION_NEWEST = 1, /* to here; at most 255, since formats give it one byte */
};

static inline bool pk_version_runs(uint64_t version)
{
    return version >= PK_VERSION_OLDEST && version <= PK_VERSION_NEWEST;
}

#endif
