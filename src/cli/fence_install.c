/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "cli/errors.h"
#include "cli/fence.h"

static int print(const char *url, const struct picket_fence_table *t)
{
    char *sql;
    enum picket_status s = picket_fence_sql(url, t, &sql);
    if (s != PICKET_OK) {
        return pk_errors_status(s);
    }
    (void)fputs(sql, stdout);
    free(sql);
    return 0;
}

int pk_fence_install(const struct pk_fence_words *s)
{
    struct picket_fence_table table = s->table;
    if (table.table == NULL && (table.column != NULL || table.resource != NULL)) {
        return pk_errors_fail("fence: --column and --guard go with --table");
    }
    if (s->url != NULL) {
        return pk_errors_fail("fence: say 'picket fence install URL', without "
                              "--resource");
    }
    if (table.column == NULL) {
        table.column = "token";
    }
    const struct picket_fence_table *t = table.table == NULL ? NULL : &table;
    if (s->print) {
        return print(s->name, t);
    }
    enum picket_status status = picket_fence_install(s->name, t);
    if (status != PICKET_OK) {
        return pk_errors_status(status);
    }
    pk_errors_remark("the fence is installed%s%s", t == NULL ? "" : " and guards ",
                     t == NULL ? "" : t->table);
    return 0;
}
