/* SPDX-License-Identifier: MIT */
/* What `picket doctor` finds in a PostgreSQL server. */
#include "drivers/postgres.h"

enum picket_status pk_pg_examine(void *own, struct pk_findings *out, uint64_t until_ms)
{
    (void)out;
    return pk_pg_do(own, "SELECT 1", &(struct pk_pg_args){0}, until_ms);
}
