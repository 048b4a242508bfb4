/* SPDX-License-Identifier: MIT */
/* Holders and waiters, in the words and the JSON that every verb uses for them. */
#ifndef PICKET_CLI_ROWS_H
#define PICKET_CLI_ROWS_H

#include <picket.h>

#include "cli/output.h"

enum { PK_OWNER_ROOM = 512 };

const char *pk_rows_mode(enum picket_mode mode); /* "exclusive" */

/* "alice@web1 pid 4121", cut to fit. Returns buf. */
const char *pk_rows_who(const struct picket_row *r, char buf[PK_OWNER_ROOM]);
/* The same with the command: "alice@web1 pid 4121 (backup.sh)". */
const char *pk_rows_owner(const struct picket_row *r, char buf[PK_OWNER_ROOM]);

/* The members of one hold or wait, into the object that is open. */
void pk_rows_json(struct pk_json *j, const struct picket_row *r);

/* The oldest hold of a view, or NULL. */
const struct picket_row *pk_rows_holder(const struct picket_view *v);

#endif
