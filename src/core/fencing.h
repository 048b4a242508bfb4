/* SPDX-License-Identifier: MIT */
/*
 * The fencing rule (P6), written once: what a fence says to a token. The machine's own
 * registers, the fence kit and the gate all ask here; none of them compares by itself.
 *
 * A fence is the highest token that a resource has accepted; 0 is the fence of a resource
 * that has accepted none. Tokens are 1 and up.
 */
#ifndef PICKET_CORE_FENCING_H
#define PICKET_CORE_FENCING_H

#include <stdint.h>

enum pk_fencing {
    PK_FENCING_STALE, /* lower: somebody newer has been here; refuse, the fence stays */
    PK_FENCING_HELD,  /* equal: the one that claimed last; accept, the fence stays */
    PK_FENCING_RAISE, /* higher: raise the fence to the token first, then accept */
};

static inline enum pk_fencing pk_fencing(uint64_t fence, uint64_t token)
{
    return token < fence    ? PK_FENCING_STALE
           : token == fence ? PK_FENCING_HELD
                            : PK_FENCING_RAISE;
}

#endif
