/* SPDX-License-Identifier: MIT */
/* What the node shows over HTTP: the dashboard at / with its /events, /metrics, /healthz,
 * /readyz, /version, and the simulator at /sim. */
#ifndef PICKET_SERVER_PAGES_H
#define PICKET_SERVER_PAGES_H

#include "server/http.h"

/* For struct pk_http_options; ctx is the struct pk_server. */
void pk_pages_get(void *ctx, struct pk_bytes path, struct pk_bytes query,
                  struct pk_http_answer *out);

#endif
