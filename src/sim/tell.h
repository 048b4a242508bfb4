/* SPDX-License-Identifier: MIT */
/* Records in plain words, for people: a log has a line of this for each. */
#ifndef PICKET_SIM_TELL_H
#define PICKET_SIM_TELL_H

#include <stdbool.h>

#include "sim/prose.h"
#include "sim/record.h"

/* How much a record matters to who follows a story. */
enum pk_weight {
    PK_WEIGHT_DETAIL, /* messages, renewals: the machinery */
    PK_WEIGHT_EVENT,
};

enum pk_weight pk_record_weight(const struct pk_record *r);
/* "A holds the lock with token 1" */
void pk_record_tell(const struct pk_record *r, struct pk_prose *out);

#endif
