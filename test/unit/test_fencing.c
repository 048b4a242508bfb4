/* SPDX-License-Identifier: MIT */
/* The fencing rule at its edges. */
#include "core/fencing.h"
#include "core/limits.h"
#include "tap.h"

TEST(fencing__lower_is_stale)
{
    CHECK(pk_fencing(2, 1) == PK_FENCING_STALE);
    CHECK(pk_fencing(PK_TOKEN_MAX, PK_TOKEN_MAX - 1) == PK_FENCING_STALE);
    CHECK(pk_fencing(UINT64_MAX, 1) == PK_FENCING_STALE);
}

TEST(fencing__equal_is_held)
{
    CHECK(pk_fencing(1, 1) == PK_FENCING_HELD);
    CHECK(pk_fencing(PK_TOKEN_MAX, PK_TOKEN_MAX) == PK_FENCING_HELD);
}

/* Also over a fence that nobody has claimed, and past what our own tokens can be. */
TEST(fencing__higher_raises)
{
    CHECK(pk_fencing(0, 1) == PK_FENCING_RAISE);
    CHECK(pk_fencing(PK_TOKEN_MAX - 1, PK_TOKEN_MAX) == PK_FENCING_RAISE);
    CHECK(pk_fencing(1, UINT64_MAX) == PK_FENCING_RAISE);
}
