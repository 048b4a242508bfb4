/* SPDX-License-Identifier: MIT */
/* What counts as text in names, labels and reasons: well-formed UTF-8 without control
 * characters, so that it can be shown on a terminal or a page without surprises. */
#ifndef PICKET_CORE_UTF8_H
#define PICKET_CORE_UTF8_H

#include <stdbool.h>

#include "core/bytes.h"

/* True for well-formed UTF-8 (shortest form, no surrogates) without C0, DEL and C1
 * controls; `newlines` allows '\n'. The empty string is printable. */
bool pk_utf8_printable(struct pk_bytes s, bool newlines);

#endif
