/* SPDX-License-Identifier: MIT */
/* What a driver declares of its stores, for `doctor` and `version`. */
#ifndef PICKET_CLI_DECLARED_H
#define PICKET_CLI_DECLARED_H

#include <picket.h>

#include "cli/output.h"

/* The members of an object that the caller has begun. */
void pk_declared_json(struct pk_json *j, const struct picket_guarantees *g);
/* Lines of "  what    words", none of them longer than a page is wide. */
void pk_declared_print(const struct picket_guarantees *g);

enum { PK_PAGE_COLUMNS = 90 };

/* Prints `text` from column `indent` on, where the cursor is, and its further lines under
 * the first; ends with a newline. Control characters come out escaped. */
void pk_page_print(size_t indent, const char *text);

#endif
